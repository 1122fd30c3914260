"""The permit maker that the package ships."""

from sandbox_console.testing.permits import MakePermit, permit

__all__ = ["MakePermit", "permit"]
