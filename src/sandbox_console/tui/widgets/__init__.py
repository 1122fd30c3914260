"""Widgets that are independent of sandboxes."""
