"""The Podman backend: the containers of one service, which speaks the API of Docker's engine."""

from __future__ import annotations

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.connection import Connection
from sandbox_console.backends.podman.connections import resolve


class PodmanBackend(DockerBackend):
    """The containers of one of Podman's services; ``host`` is the connection's name.

    What Podman does in another way is in ``backends.docker.podman_dialect``, since a docker context may lead to a
    Podman service as well.
    """

    name = "podman"

    def _connected(self, context: str) -> Connection:
        return Connection(context, self.name, resolve)
