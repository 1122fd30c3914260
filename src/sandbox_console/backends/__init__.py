"""The backends, one folder each, which implement the protocols in base.py. The registry finds them by entry point."""
