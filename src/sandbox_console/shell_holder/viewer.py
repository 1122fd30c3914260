"""One connection to a holder: somebody who sees the shell, and may type into it.

What a viewer has not read yet is bounded: beyond `MOST` bytes its output is dropped, and it gets the whole screen again
once it has read what is on its way. So a viewer that never reads costs neither memory nor the others' time.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from typing import Any, Protocol

from sandbox_console.shell_holder.frames import (
    ASK,
    ATTACH,
    END,
    MOST_TYPED,
    OUTPUT,
    REFUSED,
    RESIZE,
    SIZE,
    SNAPSHOT,
    STATE,
    TYPED,
    Frames,
    frame,
)

MOST = 1 << 20
"""How many bytes of output may wait for one viewer, beyond a snapshot."""

HELLO_S = 5.0
"""How long a connection may say nothing."""

_NAME_MOST = 200


class Holds(Protocol):
    """What a viewer needs of the holder."""

    def attached(self) -> str: ...
    def resized(self) -> None: ...
    def typed(self, viewer: Viewer, data: bytes) -> bool: ...
    def drained(self) -> None: ...
    def left(self, viewer: Viewer) -> None: ...
    def asked_to_end(self, actor: str, reason: str) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def snapshot(self) -> bytes: ...


class Viewer:
    """A connection. It is a viewer once it has said who it is."""

    def __init__(self, connection: socket.socket, holder: Holds) -> None:
        connection.setblocking(False)
        self.read_only = True
        self.size: tuple[int, int] | None = None
        self.is_attached = False
        self.actor = ""
        self.live = False
        """Whether it has caught up since its last snapshot, so that the guest may be held back for it."""
        self._connection, self._holder = connection, holder
        self._frames = Frames(MOST_TYPED)
        self._out: deque[bytes] = deque()
        self._sent = 0
        self.backlog = 0
        self._most = MOST
        self._behind = self._closing = self._writing = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection, self._read)
        self._hello = self._loop.call_later(HELLO_S, self.close)

    def output(self, data: bytes) -> None:
        """Show output. It is dropped if too much waits already: the screen follows when that has been read."""
        if self._behind:
            return
        if self.backlog + len(data) > self._most:
            self.fall_behind()
            return
        self._put(OUTPUT, data)

    def fall_behind(self) -> None:
        """Drop what waits, but for a message that is half sent."""
        self._behind, self.live = True, False
        while len(self._out) > bool(self._sent):
            self.backlog -= len(self._out.pop())
        self._flush()

    def say(self, kind: bytes, facts: dict[str, Any]) -> None:
        """Send a message with facts."""
        self._put(kind, json.dumps(facts).encode())

    def close_when_read(self, seconds: float) -> None:
        """Close once everything has been read, or after this time."""
        self._closing = True
        self._loop.call_later(seconds, self.close)
        self._flush()

    def close(self) -> None:
        """Close. Safe to call twice."""
        self._hello.cancel()
        if self._connection.fileno() < 0:
            return
        self._loop.remove_reader(self._connection)
        self._loop.remove_writer(self._connection)
        self._connection.close()
        self._holder.left(self)

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._connection.fileno() < 0

    def read_on(self) -> None:
        """Take messages again, after the guest has read what was typed."""
        if not self.closed:
            self._loop.add_reader(self._connection, self._read)

    def _read(self) -> None:
        try:
            data = self._connection.recv(MOST_TYPED)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            messages = self._frames.feed(data)
            for kind, body in messages if data else ():
                self._take(kind, body)
        except (ValueError, TypeError, KeyError, RecursionError):  # it does not speak our language
            data = b""
        if not data:
            self.close()

    def _take(self, kind: bytes, body: bytes) -> None:
        self._hello.cancel()
        if kind == ASK:
            self.say(STATE, self._holder.state())
            self.close_when_read(HELLO_S)
        elif kind == END:
            request = json.loads(body)
            self._holder.asked_to_end(str(request["actor"])[:_NAME_MOST], str(request["reason"])[:_NAME_MOST])
        elif kind == ATTACH and not self.is_attached:
            self._attach(json.loads(body))
        elif kind == RESIZE and self.is_attached:
            self.size = _size(*SIZE.unpack(body)) if len(body) == SIZE.size else self.size
            self._holder.resized()
        elif kind == TYPED and self.is_attached and not self.read_only and not self._holder.typed(self, body):
            self._loop.remove_reader(self._connection)

    def _attach(self, request: dict[str, Any]) -> None:
        self.actor = str(request["actor"])[:_NAME_MOST]
        self.read_only = request["read_only"] is not False
        self.size = _size(int(request["cols"]), int(request["rows"]))
        self.is_attached = True
        if refusal := self._holder.attached():
            self._put(REFUSED, refusal.encode())
            self.close_when_read(HELLO_S)
            return
        self.say(STATE, self._holder.state())
        self._show_all()

    def _show_all(self) -> None:
        self._behind = False
        snapshot = self._holder.snapshot()
        self._most = MOST + self.backlog + len(snapshot)
        self._put(SNAPSHOT, snapshot)

    def _put(self, kind: bytes, body: bytes) -> None:
        if self.closed:
            return
        message = frame(kind, body)
        self._out.append(message)
        self.backlog += len(message)
        if not self._writing:
            self._flush()

    def _flush(self) -> None:
        """Send what the socket takes."""
        try:
            while self._out and not self.closed:
                sent = self._connection.send(memoryview(self._out[0])[self._sent :], socket.MSG_NOSIGNAL)
                self._sent += sent
                self.backlog -= sent
                if self._sent == len(self._out[0]):
                    self._out.popleft()
                    self._sent = 0
        except BlockingIOError:
            pass
        except OSError:
            self.close()
        if self.closed:
            return
        self._want_writing(bool(self._out))
        if not self._out:
            self._emptied()
        self._holder.drained()

    def _want_writing(self, wanted: bool) -> None:
        if wanted is not self._writing:
            self._writing = wanted
            if wanted:
                self._loop.add_writer(self._connection, self._flush)
            else:
                self._loop.remove_writer(self._connection)

    def _emptied(self) -> None:
        if self._closing:
            self._loop.call_soon(self.close)
        elif self._behind:
            self._show_all()
        elif self.is_attached:
            self.live, self._most = True, MOST


def _size(cols: int, rows: int) -> tuple[int, int]:
    return min(max(cols, 1), 1000), min(max(rows, 1), 1000)
