"""A connection to a port of a Pod, through the API server (``pods/portforward``)."""

from __future__ import annotations

import asyncio
from typing import Any

from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.exec_socket import STATUS, STDERR, STDIN, STDOUT, ExecSocket
from sandbox_console.backends.kubernetes.objects import Pod
from sandbox_console.backends.kubernetes.process import KubernetesProcess

_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
"""Each of the two channels begins with the number of its port."""


async def connect(cluster: Cluster, pod: Pod, port: int) -> KubernetesProcess:
    """Connect; what is written goes to the port, and its answers are the output. Raises NotFound, Forbidden."""
    namespace, name = pod.metadata.namespace, pod.metadata.name
    path = await cluster.core("pods", name, namespace=namespace, sub="portforward")
    request = f"create pods/portforward {namespace}/{name}"
    ws = await cluster.socket(path, request, [("ports", str(port))], ("v4.channel.k8s.io",))
    return KubernetesProcess(_PortSocket(ws), _nothing)


async def _nothing() -> None:
    await asyncio.sleep(0)


class _PortSocket(ExecSocket):
    """The two channels of a port, as those of a command: data in and out, and an error as its end."""

    def __init__(self, ws: Any) -> None:
        super().__init__(ws)
        self._skip = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}
        self._failed = False

    async def receive(self) -> tuple[int, bytes] | None:
        message = await super().receive()
        if message is None:
            return None if self._failed else self._over()
        channel, data = message
        skip = self._skip.get(channel, 0)
        self._skip[channel] = max(0, skip - len(data))
        data = data[skip:]
        if channel == _DATA:
            return STDOUT, data
        self._failed = self._failed or bool(data)
        return STDERR, data

    def _over(self) -> tuple[int, bytes]:
        """The end without an error, told once."""
        self._failed = True
        return STATUS, b'{"status":"Success"}'

    async def send(self, channel: int, data: bytes) -> None:
        if channel == STDIN:
            await super().send(_DATA, data)
