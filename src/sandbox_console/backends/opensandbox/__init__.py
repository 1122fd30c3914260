"""Servers of OpenSandbox. Importing this package imports no client."""

from sandbox_console.backends.opensandbox.provider import OpenSandboxProvider

__all__ = ["OpenSandboxProvider"]
