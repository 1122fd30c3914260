"""A table that draws only the visible rows."""
