"""The whole fleet in figures on one page."""
