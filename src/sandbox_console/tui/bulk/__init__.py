"""One verb on several sandboxes."""
