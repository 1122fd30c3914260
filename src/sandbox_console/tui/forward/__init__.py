"""Ports of sandboxes forwarded to this machine."""
