"""The form that creates or changes a sandbox."""
