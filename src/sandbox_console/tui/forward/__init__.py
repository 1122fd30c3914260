"""Forwards ports of sandboxes to this machine."""
