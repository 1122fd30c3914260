"""One folder a backend, behind the protocols of base.py; the registry finds them by entry point."""
