"""Accounts of E2B. Importing this package imports no client."""

from sandbox_console.backends.e2b.provider import E2bProvider

__all__ = ["E2bProvider"]
