"""Shells in sandboxes, and the main process's own streams."""
