"""The Model Context Protocol for the console: what an assistant may see and do, as set in ``[mcp]``."""
