"""Containers of Podman, over the API of Docker's that its service speaks. Importing this package imports no SDK."""

from sandbox_console.backends.podman.provider import PodmanProvider

__all__ = ["PodmanProvider"]
