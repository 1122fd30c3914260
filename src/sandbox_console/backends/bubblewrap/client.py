"""The console's end of a supervisor's socket."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox_console.backends.bubblewrap.supervise import wire
from sandbox_console.backends.common.messages import not_running
from sandbox_console.errors import BackendError

_CONNECT_S = 5.0


class Connection:
    """One request and its answers. Closing it ends a command that is still running."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    @classmethod
    async def open(cls, folder: Path, name: str) -> Connection:
        """Connect. Raises Conflict if nobody listens, so that the sandbox is not running."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        until = asyncio.get_running_loop().time() + _CONNECT_S
        while True:
            try:
                _connect(sock, folder)
                return cls(sock)
            except BlockingIOError:  # its queue of connections is full at the moment
                if asyncio.get_running_loop().time() > until:
                    sock.close()
                    raise BackendError(f"the supervisor of {name} does not answer") from None
                await asyncio.sleep(0.01)
            except OSError as error:
                sock.close()
                raise not_running(name) from error

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a small message."""
        wire.send(self._sock, message, tuple(fds))

    def request(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Request the start of a command, passed in a memfd, as it may be long and contains secrets."""
        memory = wire.to_memfd("request", json.dumps(message).encode())
        try:
            wire.send(self._sock, {"op": "exec"}, (memory, *fds))
        finally:
            os.close(memory)

    async def receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        """The next message and its descriptors; None at the end."""
        while True:
            try:
                return wire.receive(self._sock)
            except BlockingIOError:
                await readable([self._sock.fileno()])

    async def answer(self) -> dict[str, Any]:
        """The next message. Raises BackendError if it is an error, or at the end."""
        message, fds = await self.receive()
        for fd in fds:
            os.close(fd)
        if message is None:
            raise BackendError("the sandbox's supervisor ended in the middle of a request")
        if "error" in message:
            raise BackendError(f"the supervisor refused: {message['error']}")
        return message

    def duplicate(self) -> int:
        """Another descriptor of the connection, for another process."""
        return os.dup(self._sock.fileno())

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._sock.close()


def _connect(sock: socket.socket, folder: Path) -> None:
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # a socket's address is limited to 107 bytes, and a state folder's path may be longer
        sock.connect(f"/proc/self/fd/{fd}/sock")
    finally:
        os.close(fd)


async def readable(fds: Sequence[int], waits: set[asyncio.Future[None]] | None = None) -> None:
    """Wait until one of the descriptors can be read, or somebody resolves the future that is added to ``waits``."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    waits = set() if waits is None else waits
    waits.add(ready)
    for fd in fds:
        loop.add_reader(fd, wake, ready)
    try:
        await ready
    finally:
        waits.discard(ready)
        for fd in fds:
            loop.remove_reader(fd)


async def writable(fd: int, waits: set[asyncio.Future[None]] | None = None) -> None:
    """Wait until the descriptor accepts bytes; ``waits`` as for :func:`readable`."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    waits = set() if waits is None else waits
    waits.add(ready)
    loop.add_writer(fd, wake, ready)
    try:
        await ready
    finally:
        waits.discard(ready)
        loop.remove_writer(fd)


def wake(ready: asyncio.Future[None]) -> None:
    """Wake a waiter by resolving its future."""
    if not ready.done():
        ready.set_result(None)
