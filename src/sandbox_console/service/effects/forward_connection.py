"""One connection of a forward: bytes between a client on this machine and a program in the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct

from msgspec import Struct

from sandbox_console.backends.base import Process
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

_CHUNK = 64 * 1024
LINGER_S = 10.0
"""How long a connection stays open while its server is silent, after its client has sent everything.

A client that is gone for good looks the same (RFC 9293, 3.6), and no program must stay in the sandbox for it.
"""
_TICK_S = 1.0
_END_S = 3.0
"""How long a program that has closed its output has to end by itself; docker lets its last output linger 2 s."""
_ESTABLISHED, _CLOSED = 1, 7
"""Values of Linux's ``tcpi_state`` (netinet/tcp.h)."""


class Tally(Struct):
    """The bytes that were carried: ``bytes_in`` into the sandbox, ``bytes_out`` out of it."""

    bytes_in: int = 0
    bytes_out: int = 0


class Connection:
    """One client's connection. It ends when either side does, and leaves nothing in the sandbox."""

    def __init__(self, client: socket.socket, process: Process, total: Tally) -> None:
        self._client, self._process, self._total = client, process, total
        self._loop = asyncio.get_running_loop()
        self._moved = 0
        self._got = False
        self._eof = False
        self.refused = False
        """Whether the program failed without passing a byte, so that nothing answered inside."""

    async def run(self) -> None:
        """Pass bytes both ways until the end, holding at most one chunk each way. The client's socket stays open."""
        up, down, gone = (asyncio.ensure_future(work) for work in (self._up(), self._down(), self._gone()))
        ended: Exit | None = None
        try:
            await asyncio.wait({down, gone, up}, return_when=asyncio.FIRST_COMPLETED)
            if up.done() and not up.exception():  # the client has sent everything, and may wait for the answer
                await asyncio.wait({down, gone}, return_when=asyncio.FIRST_COMPLETED)
            if down.done() and not down.exception():
                ended = await self._end()
        finally:
            for task in (up, down, gone):
                task.cancel()
            await asyncio.gather(up, down, gone, return_exceptions=True)
            if ended is None:
                await run_to_completion(self._process.kill())
        self._close_client(ended)

    async def _up(self) -> None:
        while data := await self._loop.sock_recv(self._client, _CHUNK):
            await self._process.write(data)
            self._total.bytes_in += len(data)
            self._moved += 1
            await asyncio.sleep(0)  # both ends may stay ready for a long time: let others run
        self._eof = True
        await self._process.close_stdin()

    async def _down(self) -> None:
        async with contextlib.aclosing(self._process.output()) as chunks:  # type: ignore[type-var]
            async for stream, data in chunks:
                if stream is Stream.STDERR:  # the program's own messages about its connection
                    continue
                self._got = True
                await self._loop.sock_sendall(self._client, data)
                self._total.bytes_out += len(data)
                self._moved += 1
                await asyncio.sleep(0)

    async def _gone(self) -> None:
        """Return when the client is gone, even while the program reads nothing and the client is not read."""
        quiet, moved = 0.0, -1
        while quiet < LINGER_S:
            await asyncio.sleep(_TICK_S)
            state = _state(self._client, self._eof)
            if state == _CLOSED:
                return
            waits = state != _ESTABLISHED and moved == self._moved
            quiet, moved = quiet + _TICK_S if waits else 0.0, self._moved

    async def _end(self) -> Exit | None:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._process.wait(), _END_S)
        return None

    def _close_client(self, ended: Exit | None) -> None:
        """Close it, or reset it if the server did not end its output."""
        self.refused = ended is not None and not self._got and ended.code != 0
        if self.refused or ended is None or ended.code is None or ended.code >= 128:
            reset(self._client)


def reset(client: socket.socket) -> None:
    """Make the close of a connection a reset, so that its client does not take it for the end of the data."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _state(client: socket.socket, eof: bool) -> int:
    """The connection's state from the kernel. Of a socket without one, only whether its other end is closed."""
    try:
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except (OSError, AttributeError):
        poll = select.poll()
        poll.register(client, 0)
        if any(event & select.POLLHUP for _, event in poll.poll(0)):
            return _CLOSED
        return 0 if eof else _ESTABLISHED
