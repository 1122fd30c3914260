"""Pages about what went wrong: the cause of an end, and what happened around it."""
