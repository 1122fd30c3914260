"""Sandboxes by bubblewrap: no daemon, no root, no image to pull."""

from sandbox_console.backends.bubblewrap.provider import BubblewrapProvider

__all__ = ["BubblewrapProvider"]
