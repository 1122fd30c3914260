"""Shells in sandboxes, and attached main processes."""
