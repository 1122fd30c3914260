"""Recordings of shells as asciicast files."""
