"""The tamper-evident log: nothing changes without a row in it."""
