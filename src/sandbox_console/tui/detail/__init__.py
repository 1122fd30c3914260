"""The selected sandbox in tabs."""
