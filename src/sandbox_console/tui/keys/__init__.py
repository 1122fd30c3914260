"""Which key does what."""
