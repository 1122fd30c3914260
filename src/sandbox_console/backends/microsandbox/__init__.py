"""MicroVMs of the microsandbox runtime on this host. Importing this package does not import the SDK."""

from sandbox_console.backends.microsandbox.provider import MicrosandboxProvider

__all__ = ["MicrosandboxProvider"]
