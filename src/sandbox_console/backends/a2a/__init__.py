"""Runtimes that speak a2a_pack's HTTP interface: another console's, or a platform's. Importing it imports no client."""

from sandbox_console.backends.a2a.provider import A2aProvider

__all__ = ["A2aProvider"]
