"""The one door to an effect: decide, record, act, record."""
