"""Organizations of Daytona. Importing this package imports no client."""

from sandbox_console.backends.daytona.provider import DaytonaProvider

__all__ = ["DaytonaProvider"]
