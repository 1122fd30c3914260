"""The Model Context Protocol over the console: what an assistant may see and do, within ``[mcp]``."""
