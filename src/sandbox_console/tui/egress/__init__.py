"""Egress rules, denied hosts, and drafts of rules."""
