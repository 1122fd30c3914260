"""The filter line of the list."""
