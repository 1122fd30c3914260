"""Servers of microsandbox 0.1 and 0.2, which speak JSON-RPC. Importing this package imports no client."""

from sandbox_console.backends.microsandbox_legacy.provider import LegacyProvider

__all__ = ["LegacyProvider"]
