"""The files of a sandbox."""
