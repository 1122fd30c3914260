"""A hijacked connection to a container or a command in it: bytes in, two streams out.

aiodocker's stream does the upgrade, the frames and the back-pressure (it stops reading the socket at 128 KiB); this
adds closing stdin, which it lacks, and a close that cannot fail.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox_console.backends.docker.failures import Lost

if TYPE_CHECKING:
    from asyncio import WriteTransport

    from aiodocker.stream import Stream as Hijacked
    from aiohttp.connector import Connection

    from sandbox_console.backends.docker.engine import Engine


class Channel:
    """A stream to open, to read until None, and to close. Writing does nothing once the other end is closed."""

    def __init__(self, engine: Engine, stream: Hijacked) -> None:
        self._engine = engine
        self._stream = stream

    async def open(self) -> None:
        """Upgrade the connection. Raises Refused, BackendUnreachable."""
        await self._engine.hijack(self._stream)

    async def read(self) -> tuple[int, bytes] | None:
        """The next chunk and its stream (1 stdout, 2 stderr); None at the end. Raises Lost if it breaks off."""
        with self._engine.translated():
            return await self._stream.read_out()

    async def write(self, data: bytes) -> None:
        """Write bytes; returns when the socket accepts more."""
        # The library asserts that the connection exists, but the peer may have closed it at any moment.
        with suppress(OSError, RuntimeError, AssertionError):
            await self._stream.write_in(data)

    def end_input(self) -> bool:
        """Close this half: the command reads end-of-file. False over TLS, which has no half-close."""
        transport = self._transport()
        if transport is None or transport.is_closing() or not transport.can_write_eof():
            return False
        with suppress(OSError, RuntimeError):
            transport.write_eof()
        return True

    async def flush(self) -> None:
        """Wait until the socket has accepted everything."""
        transport = self._transport()
        while transport and not transport.is_closing() and transport.get_write_buffer_size():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Close both directions at once. Unread input is dropped, as the socket would wait for it for ever."""
        transport = self._transport()
        response = self._stream._resp  # noqa: SLF001 - as in _transport
        with suppress(OSError, RuntimeError, AssertionError):
            await self._stream.close()
        if response is not None:
            response.close()
        if transport is not None and transport.get_write_buffer_size():
            transport.abort()

    def duplicate(self) -> tuple[int, bytes]:
        """Another descriptor of the connection, for another process, and what was read of it and not shown."""
        transport, queue = self._transport(), self._stream._queue  # noqa: SLF001 - as in _transport
        if transport is None or queue is None:
            raise Lost("the connection has ended")
        transport.pause_reading()  # type: ignore[attr-defined]
        pending = b"".join(message.data for message, *_ in queue._buffer)  # noqa: SLF001
        return os.dup(transport.get_extra_info("socket").fileno()), pending

    def release(self) -> None:
        """Close this process's descriptor. Nothing is sent, so that the other end notices nothing."""
        transport = self._transport()
        self._stream._closed = True  # noqa: SLF001
        if transport is not None:
            transport.abort()
        if (connection := self._connection()) is not None:
            connection.close()  # otherwise aiohttp complains of it on stderr, which is the user's terminal

    def _connection(self) -> Connection | None:
        response = self._stream._resp  # noqa: SLF001 - aiodocker 0.27 has no public way to end stdin alone
        return response.connection if response is not None else None

    def _transport(self) -> WriteTransport | None:
        connection = self._connection()
        transport: WriteTransport | None = connection.transport if connection is not None else None
        return transport
