"""The version of this package, which every part can read without importing the API."""

__version__ = "0.1.0"
