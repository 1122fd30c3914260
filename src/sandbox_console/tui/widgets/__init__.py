"""Widgets that know nothing of sandboxes."""
