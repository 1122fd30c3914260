"""A table that draws only the rows in view."""
