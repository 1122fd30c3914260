"""Containers of any Docker engine that a docker context names. Importing this package imports no SDK."""

from sandbox_console.backends.docker.provider import DockerProvider

__all__ = ["DockerProvider"]
