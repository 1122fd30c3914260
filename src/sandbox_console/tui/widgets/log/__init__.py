"""A log that draws only the lines in view."""
