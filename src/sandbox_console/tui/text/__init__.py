"""Formats values as text, without Textual."""
