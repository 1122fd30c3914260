"""Sandboxes made with bubblewrap: they need no daemon, no root and no image to pull."""

from sandbox_console.backends.bubblewrap.provider import BubblewrapProvider

__all__ = ["BubblewrapProvider"]
