"""MicroVMs of the microsandbox runtime on this host. Importing this imports no SDK."""

from sandbox_console.backends.microsandbox.provider import MicrosandboxProvider

__all__ = ["MicrosandboxProvider"]
