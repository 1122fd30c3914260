"""Incidents: why a sandbox ended, what happened around it, and the evidence."""
