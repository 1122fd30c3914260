"""The output of sandboxes."""
