"""The console for the sandboxes that AI agents and developers run code in.

The library's front door is :func:`sandbox_console.service.open_console`.
"""

__version__ = "0.1.0"
