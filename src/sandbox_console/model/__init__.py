"""Frozen data types that the whole package uses. No module in here does any I/O."""
