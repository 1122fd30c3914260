"""The tamper-evident audit log: nothing changes without a row in it."""
