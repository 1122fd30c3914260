"""What programs talk to: the HTTP API for agents and MCP, beside the page or without it."""
