"""Reads and writes a socket in units of a protocol, without asyncio's transports.

A transport copies what it cannot send at once and needs a buffer for each connection, and a relay takes over the bare
socket.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

_READ = 16 * 1024  # what a connection may buffer; thousands are open at once


class TooLong(ValueError):
    """The searched mark did not come within the bytes allowed for it."""


class Stream:
    """A non-blocking socket, with what was read from it but not used yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rest = b""
        self.read_bytes = 0
        self._loop = asyncio.get_running_loop()

    async def until(self, mark: bytes, most: int) -> bytes:
        """The bytes up to and including ``mark``. Raises TooLong, EOFError."""
        start = 0
        while (at := self.rest.find(mark, start)) < 0:
            if len(self.rest) >= most:
                raise TooLong
            start = max(0, len(self.rest) - len(mark) + 1)
            await self.more()
        if at + len(mark) > most:
            raise TooLong
        return self.take(at + len(mark))

    def take(self, size: int) -> bytes:
        """The next bytes of what has been read."""
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    async def some(self, most: int = _READ) -> bytes:
        """The next bytes, at least one. Raises EOFError."""
        if not self.rest:
            await self.more()
        return self.take(most)

    async def more(self) -> None:
        """Read once from the socket. Raises EOFError."""
        data = await self._loop.sock_recv(self.sock, _READ)
        if not data:
            raise EOFError
        self.read_bytes += len(data)
        self.rest += data

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        await self._loop.sock_sendall(self.sock, data)


def tune(sock: socket.socket) -> None:
    """Set the options of every connection: no delay of small writes, and keepalives that notice a peer that is gone."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def reset(sock: socket.socket) -> None:
    """Close so that the other side sees a failure and not an end: half a download must not look complete."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
