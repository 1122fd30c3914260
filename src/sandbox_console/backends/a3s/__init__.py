"""Local runtimes of A3S Box. Importing this package imports no SDK."""

from sandbox_console.backends.a3s.provider import A3sProvider

__all__ = ["A3sProvider"]
