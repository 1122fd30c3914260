"""Relays bytes both ways between two sockets, in bounded memory."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path

_BUFFER = memoryview(bytearray(256 * 1024))  # shared: each read is passed on before the next one
_SMALL = 4 * 1024


_NOTE_S = 0.5


class Budget:
    """How much is buffered for slow readers in all. Above the budget only small pieces are read.

    ``used`` is a file whose modification time is when a byte last passed, to half a second.
    """

    def __init__(self, limit: int = 32 << 20, used: Path | None = None) -> None:
        self._limit, self._used = limit, used
        self._noted = -_NOTE_S
        self.held = 0

    def note_use(self) -> None:
        """Note that a byte passed. A full disk does not matter, as the file exists after the first time."""
        if self._used is not None and time.monotonic() - self._noted >= _NOTE_S:
            self._noted = time.monotonic()
            with suppress(OSError):
                self._used.touch()

    def piece(self) -> memoryview:
        """The buffer to read into."""
        return _BUFFER if self.held < self._limit else _BUFFER[:_SMALL]


class _Direction:
    """One direction: reads when the other side accepts bytes, and buffers at most one piece."""

    def __init__(self, relay: Relay, source: socket.socket, sink: socket.socket) -> None:
        self._relay, self._source, self._sink = relay, source, sink
        self._loop = asyncio.get_running_loop()
        self._pending = b""
        self.bytes = 0
        self.ended = False

    def start(self) -> None:
        """Begin reading."""
        self._loop.add_reader(self._source, self._readable)

    def stop(self) -> None:
        """Stop watching both sockets."""
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._sink)
        self._relay.budget.held -= len(self._pending)
        self._pending = b""

    def _readable(self) -> None:
        piece = self._relay.budget.piece()
        try:
            size = self._source.recv_into(piece)
        except BlockingIOError:
            return
        except OSError:
            self._relay.finish()
            return
        self._relay.active = True
        if size:
            self.bytes += size
            self._relay.budget.note_use()
            self._pass_on(piece[:size])
        else:
            self._end()

    def _pass_on(self, data: memoryview) -> None:
        try:
            sent = self._sink.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._relay.finish()
            return
        if sent < len(data):
            self._pending = bytes(data[sent:])
            self._relay.budget.held += len(self._pending)
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._sink, self._writable)

    def _writable(self) -> None:
        try:
            sent = self._sink.send(self._pending)
        except BlockingIOError:
            return
        except OSError:
            self._relay.finish()
            return
        self._relay.active = True
        self._relay.budget.held -= sent
        self._pending = self._pending[sent:]
        if not self._pending:
            self._loop.remove_writer(self._sink)
            self.start()

    def _end(self) -> None:
        """Handle the end of the source. The other direction may go on."""
        self._loop.remove_reader(self._source)
        self.ended = True
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._relay.finish()
            return
        self._relay.half_ended()


class Relay:
    """Both directions until both have ended or one fails. ``up`` is from the client, ``down`` to it."""

    def __init__(self, client: socket.socket, server: socket.socket, budget: Budget) -> None:
        self.budget = budget
        self.active = True
        self.up = _Direction(self, client, server)
        self.down = _Direction(self, server, client)
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Relay until the end. The sockets stay open; the caller closes them."""
        self.up.start()
        self.down.start()
        try:
            await self._done
        finally:
            self.up.stop()
            self.down.stop()

    @property
    def half(self) -> bool:
        """Whether one direction has ended."""
        return self.up.ended or self.down.ended

    def half_ended(self) -> None:
        """Note that a direction has ended."""
        if self.up.ended and self.down.ended:
            self.finish()

    def finish(self) -> None:
        """End both directions."""
        if not self._done.done():
            self._done.set_result(None)
