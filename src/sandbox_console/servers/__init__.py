"""The servers for programs: the HTTP API for agents, and MCP, with the web page or without it."""
