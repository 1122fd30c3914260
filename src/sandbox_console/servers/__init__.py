"""The servers for programs: the HTTP API for agents, and MCP, beside the page or without it."""
