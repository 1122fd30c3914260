"""The parts of a sandbox's supervisor: standard library only, and no import after a namespace is joined."""
