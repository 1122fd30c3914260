"""Learns where this machine's package tools fetch packages from, by reading their settings. Nothing is run."""
