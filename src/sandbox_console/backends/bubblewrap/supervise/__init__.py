"""What the supervisor of a sandbox is made of: standard library only, no import after a namespace is joined."""
