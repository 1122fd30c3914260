"""The only way to an effect: decide, record, act, record."""
