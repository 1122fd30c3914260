"""The version of this package, where every part can read it without importing the API."""

__version__ = "0.1.0"
