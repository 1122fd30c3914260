"""A WebSocket to a command in a container: v5.channel.k8s.io where the server has it, else v4.

Each message begins with the number of its channel. v4 has no way to end stdin; v5 (Kubernetes 1.30) has channel 255.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.objects import Pod
from sandbox_console.model.sandbox import Exit

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CLOSING = "v5.channel.k8s.io"
PROTOCOLS = (CLOSING, "v4.channel.k8s.io")
CHUNK = 32 * 1024
"""Bytes in one message."""


class ExecSocket:
    """The open socket of one command."""

    def __init__(self, ws: Any) -> None:
        self._ws = ws
        self.ends_stdin: bool = ws.protocol == CLOSING

    async def receive(self) -> tuple[int, bytes] | None:
        """The next message: its channel and its bytes; None at the end."""
        import aiohttp

        message = await self._ws.receive()
        if message.type is aiohttp.WSMsgType.BINARY and message.data:
            return message.data[0], message.data[1:]
        return (STDERR, b"") if message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT) else None

    async def send(self, channel: int, data: bytes) -> None:
        """Send bytes. A server that has closed the socket is no error: its status tells the end."""
        for at in range(0, len(data), CHUNK) or (0,):
            try:
                await self._ws.send_bytes(bytes((channel,)) + data[at : at + CHUNK])
            except (ConnectionError, RuntimeError):
                return

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the terminal."""
        await self.send(RESIZE, json.dumps({"Width": cols, "Height": rows}).encode())

    async def close_stdin(self) -> None:
        """End stdin, where the protocol can."""
        if self.ends_stdin:
            await self.send(CLOSE, bytes((STDIN,)))

    async def close(self) -> None:
        """Close it. The command is not told."""
        await self._ws.close()


async def open_exec(
    cluster: Cluster, pod: Pod, container: str, argv: Sequence[str], *, stdin: bool, tty: bool = False
) -> ExecSocket:
    """Start a command. Raises NotFound, Forbidden, BackendUnreachable."""
    namespace, name = pod.metadata.namespace, pod.metadata.name
    path = await cluster.core("pods", name, namespace=namespace, sub="exec")
    params = [("container", container), *(("command", word) for word in argv), ("stdout", "1")]
    params += [("stdin", "1")] if stdin else []
    params += [("tty", "1")] if tty else [("stderr", "1")]
    return ExecSocket(await cluster.socket(path, f"create pods/exec {namespace}/{name}", params, PROTOCOLS))


class _Cause(Struct):
    reason: str = ""
    message: str = ""


class _Details(Struct):
    causes: tuple[_Cause, ...] = ()


class _Status(Struct):
    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_NOT_FOUND = ("executable file not found", "no such file or directory")


def exit_of(data: bytes) -> Exit:
    """How a command ended, by the message on the status channel."""
    try:
        found = msgspec.json.decode(data, type=_Status)
    except msgspec.DecodeError:
        return Exit(137, 9, reason="the API server told no exit code")
    if found.status == "Success":
        return Exit(0)
    for cause in found.details.causes if found.details else ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return Exit(int(cause.message) & 255)
    if any(words in found.message for words in _NOT_FOUND):
        return Exit(127, reason=found.message[:300])
    if "permission denied" in found.message:
        return Exit(126, reason=found.message[:300])
    return Exit(137, 9, reason=f"the sandbox ended: {found.message[:300]}")
