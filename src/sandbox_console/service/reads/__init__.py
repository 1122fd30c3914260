"""Reads, which change nothing: the fleet, its events, logs, traffic, secrets and recordings."""
