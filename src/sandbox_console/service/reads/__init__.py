"""Reads, which change nothing: the fleet, events, logs, traffic, secrets and recordings."""
