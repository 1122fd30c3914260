"""The sessions that a face holds open: a shell, an attached process, a forward."""
