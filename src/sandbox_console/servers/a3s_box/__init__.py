"""``a3s-box sdk-bridge``: answers the SDK of A3S Box, whose sandboxes run on the console's backends."""
