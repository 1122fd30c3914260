"""A log that draws only the visible lines."""
