"""Containers of any Docker engine, by docker context. Importing this imports no SDK."""

from sandbox_console.backends.docker.provider import DockerProvider

__all__ = ["DockerProvider"]
