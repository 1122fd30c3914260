"""The fleet for monitoring: `/metrics` for Prometheus, `/status.json` for scripts and `/status` for people."""
