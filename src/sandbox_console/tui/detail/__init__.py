"""The tabs for the selected sandbox."""
