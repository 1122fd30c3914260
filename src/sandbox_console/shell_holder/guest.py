"""The holder's end of a guest's shell: open files that the console passed on.

A shell of bubblewrap is a PTY and a socket of the sandbox's supervisor, which kills the shell's tree when the socket is
closed. A shell of Docker is a connection to the engine, which a request resizes and asks for the exit code; its tree
is killed by the command that records the end (``service/sessions/lost_shells.py``).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import socket
import struct
import termios
from collections.abc import Callable
from typing import Any

CHUNK = 64 * 1024
_TYPED_MOST = 1 << 20
_HANG_UP_S = 1.0
_GONE_S = 5.0
_ENGINE_S = 5.0
"""How long an engine may take to resize a terminal or to give an exit code. A frozen one never answers."""

_AGAIN_S = 0.5
"""The pause before a size is sent again to an engine that did not answer."""

End = dict[str, Any]
"""``exit``, ``signal`` and ``reason``, as far as they are known."""


class Guest:
    """A stream of bytes in both directions. ``on_output`` gets what the guest writes, and nothing at its end."""

    def __init__(self, fd: int, pending: bytes, on_output: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self.ended = False
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._on_output = on_output
        self._typed = bytearray()
        self._pending = pending
        self._reading = False
        self._drained: list[Callable[[], None]] = []

    def read_on(self) -> None:
        """Pass on output from now on."""
        if self._pending:
            pending, self._pending = self._pending, b""
            self._on_output(pending)
        if not self._reading and not self.ended:
            self._reading = True
            self._loop.add_reader(self._fd, self._read)

    def hold(self) -> None:
        """Pass on nothing until ``read_on``, so that the guest waits."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def write(self, data: bytes) -> bool:
        """Type into the guest. Returns False if it reads nothing, so that more has to wait for ``when_drained``."""
        if self.ended:
            return True
        if not self._typed:
            self._loop.add_writer(self._fd, self._write)
        self._typed += data
        return len(self._typed) < _TYPED_MOST

    def when_drained(self, then: Callable[[], None]) -> None:
        """Call a function when typed bytes have been read by the guest."""
        self._drained.append(then)

    def resize(self, cols: int, rows: int) -> None:
        """Set the size of the PTY."""
        raise NotImplementedError

    async def end(self) -> End:
        """Hang up, wait a moment for the shell's own end, and let go. Returns how it ended."""
        raise NotImplementedError

    def _read(self) -> None:
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: no process has the PTY open any more
            data = b""
        if not data:
            self.hold()
        self._on_output(data)

    def _write(self) -> None:
        try:
            del self._typed[: os.write(self._fd, self._typed[:CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # it has ended, which the reading side finds out
            self._typed.clear()
        if not self._typed:
            self._loop.remove_writer(self._fd)
            drained, self._drained = self._drained, []
            for then in drained:
                then()

    def _release(self) -> None:
        self.hold()
        self._loop.remove_writer(self._fd)
        self.ended = True
        os.close(self._fd)


class SupervisedGuest(Guest):
    """A shell on a PTY, started by a supervisor of bubblewrap."""

    def __init__(
        self, fd: int, pending: bytes, on_output: Callable[[bytes], None], supervisor: int, on_exit: Callable[[], None]
    ) -> None:
        super().__init__(fd, pending, on_output)
        self._supervisor = socket.socket(fileno=supervisor)
        self._supervisor.setblocking(False)
        self._exit: End = {}
        self._exited, self._gone = asyncio.Event(), asyncio.Event()
        self._on_exit = on_exit
        self._loop.add_reader(self._supervisor, self._read_report)

    def resize(self, cols: int, rows: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def end(self) -> End:
        self._release()  # the kernel hangs up: SIGHUP to the shell and its foreground
        await _within(_HANG_UP_S, self._exited)
        if not self._gone.is_set():
            with contextlib.suppress(OSError):
                self._supervisor.send(b'{"op": "kill"}', socket.MSG_NOSIGNAL)
            await _within(_GONE_S, self._gone)
        self._loop.remove_reader(self._supervisor)
        self._supervisor.close()
        return self._exit or {"exit": 129, "signal": 1, "reason": "it was hung up"}

    def _read_report(self) -> None:
        """Read a message of the supervisor: JSON, one in each packet."""
        try:
            data = self._supervisor.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        report: Any = {}
        with contextlib.suppress(ValueError, RecursionError):
            report = json.loads(data or b'{"gone": true}')
        report = report if isinstance(report, dict) else {}
        if isinstance(end := report.get("exit"), dict):
            self._exit = {"exit": end.get("code"), "signal": end.get("signal"), "reason": str(end.get("reason") or "")}
            self._on_exit()
        elif "gone" in report:
            self._exit = self._exit or {"exit": 137, "signal": 9, "reason": "the sandbox ended"}
            self._gone.set()
        if self._exit:
            self._exited.set()
        if not data:
            self._loop.remove_reader(self._supervisor)


class EngineGuest(Guest):
    """A shell of a Docker engine that listens on a Unix socket of this machine."""

    def __init__(self, fd: int, pending: bytes, on_output: Callable[[bytes], None], engine: str, id_: str) -> None:
        super().__init__(fd, pending, on_output)
        self._engine, self._id = engine, id_
        self._wanted: tuple[int, int] | None = None
        self._resizing: asyncio.Task[None] | None = None

    def resize(self, cols: int, rows: int) -> None:
        self._wanted = (cols, rows)
        if self._resizing is None or self._resizing.done():
            self._resizing = self._loop.create_task(self._resize())

    async def end(self) -> End:
        self._release()
        if self._resizing is not None:
            self._resizing.cancel()
        for pause in (0.0, 0.1, 0.3, 0.5):  # the engine learns of the end a moment after the stream's
            await asyncio.sleep(pause)
            found = await self._request("GET", f"/exec/{self._id}/json") or {}
            if found.get("Running") is False and isinstance(code := found.get("ExitCode"), int):
                signal = code - 128 if 128 < code <= 128 + 64 else None
                return {"exit": code, "signal": signal, "reason": ""}
        return {}

    async def _resize(self) -> None:
        """Tell the engine the latest size, again and again until it answers or the shell ends."""
        while (size := self._wanted) is not None:
            if await self._request("POST", f"/exec/{self._id}/resize?h={size[1]}&w={size[0]}") is None:
                await asyncio.sleep(_AGAIN_S)
            elif self._wanted == size:
                self._wanted = None

    async def _request(self, method: str, target: str) -> dict[str, Any] | None:
        """The JSON of the engine's answer; empty if it has none. None if the engine does not answer."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_ENGINE_S):
                reader, writer = await asyncio.open_unix_connection(self._engine)
                try:  # HTTP/1.0: the body ends with the connection
                    writer.write(f"{method} {target} HTTP/1.0\r\nHost: docker\r\nContent-Length: 0\r\n\r\n".encode())
                    head, _, body = (await reader.read(1 << 20)).partition(b"\r\n\r\n")
                    while more := await reader.read(1 << 20):
                        body += more
                finally:
                    writer.close()
            return _object(body) if head else None
        return None


def _object(body: bytes) -> dict[str, Any]:
    """A JSON object; empty if it is none, as after an error."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(body)
        return found if isinstance(found, dict) else {}
    return {}


def make(facts: dict[str, Any], on_output: Callable[[bytes], None], on_exit: Callable[[], None]) -> Guest:
    """The guest that a console passed on, from what its backend said of it (``backends.base.PassedShell``)."""
    pending = base64.b64decode(facts["pending"])
    fd, *others = facts["files"]
    if facts["kind"] == "engine":
        return EngineGuest(fd, pending, on_output, facts["engine"], facts["exec"])
    return SupervisedGuest(fd, pending, on_output, others[0], on_exit)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
