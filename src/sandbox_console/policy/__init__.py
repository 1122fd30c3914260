"""The policy room: pure decisions about actions."""
