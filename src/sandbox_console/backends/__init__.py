"""The backends, one folder each, behind the protocols of base.py. The registry finds them by entry point."""
