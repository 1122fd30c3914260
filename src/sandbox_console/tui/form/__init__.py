"""The form that makes or changes a sandbox."""
