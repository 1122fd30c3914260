"""Commands and shells in a sandbox. Their bytes go through pipes or a PTY, never through the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import AsyncIterator
from typing import Any

from sandbox_console.backends.base import PassedShell
from sandbox_console.backends.bubblewrap.client import Connection, readable, wake, writable
from sandbox_console.errors import BackendError, Conflict, Unsupported
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit
from sandbox_console.model.shells import NO_SHELL, NO_SHELL_HINT

_NOT_FOUND = 127
_CHUNK = 256 * 1024
"""The size of a command's pipe, and of one read: with a pipe of 64 KiB, 1 GiB takes twice the time."""
_HANG_UP_S = 1.0  # how long a shell has to end by itself after SIGHUP


class _Guest:
    """What a command and a shell have in common: how they ended, and ending them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._exit: Exit | None = None
        self._gone = False
        self._turn = asyncio.Lock()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        raise NotImplementedError

    async def wait(self) -> Exit:
        while self._exit is None:
            async with self._turn:
                if self._exit is None:
                    await self._next()
        return self._exit

    async def _next(self) -> None:
        message, fds = await self._connection.receive()
        for fd in fds:
            os.close(fd)
        if message is None or "gone" in message:
            self._gone = True
            self._exit = self._exit or Exit(code=137, signal=9, reason="the sandbox ended")
        elif "failed" in message:
            self._exit = _failed(message)
        elif "exit" in message:
            end = message["exit"]
            self._exit = Exit(end["code"], end["signal"], end.get("oom"), end.get("reason", ""))

    async def _kill(self) -> None:
        """Kill the process tree and wait until nothing of it is left."""
        self._connection.send({"op": "kill"})
        while not self._gone:
            async with self._turn:
                if not self._gone:
                    await self._next()
        self._connection.close()


def _failed(message: dict[str, Any]) -> Exit:
    if message["failed"] == 125:
        raise BackendError(message["reason"])
    return Exit(code=message["failed"], reason=message["reason"])


async def _started(connection: Connection, name: str) -> tuple[Exit | None, int, int | None]:
    """Wait until the command runs; returns its exit if it cannot, else its terminal, if any, and its pid inside."""
    terminal = -1
    while True:
        message, fds = await connection.receive()
        if message is None:
            raise Conflict(f"{name} has ended")
        if "error" in message:
            raise Conflict(f"{name}: {message['error']}")
        if "terminal" in message:
            terminal = fds[0]
        if "failed" in message:
            return _failed(message), terminal, None
        if "started" in message or "gone" in message:
            return None, terminal, message.get("pid")


class Command(_Guest):
    """A :class:`~sandbox_console.backends.base.Process`. The pipes hold the guest back if nobody reads."""

    def __init__(self, connection: Connection, stdin: int, stdout: int, stderr: int) -> None:
        super().__init__(connection)
        self.pid: int | None = None
        self._stdin = stdin
        self._streams = {stdout: Stream.STDOUT, stderr: Stream.STDERR}
        for fd in (stdin, stdout, stderr):
            os.set_blocking(fd, False)
        with contextlib.suppress(OSError):  # EPERM if the user's pipes already hold too much: pipe(7)
            fcntl.fcntl(stdout, fcntl.F_SETPIPE_SZ, _CHUNK)

    @classmethod
    async def start(cls, connection: Connection, request: dict[str, Any], name: str) -> Command:
        """Pass the ends of three pipes to the supervisor, and wait until the command runs or fails to start."""
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        command = cls(connection, pipes[0][1], pipes[1][0], pipes[2][0])
        try:
            connection.request(request, theirs)
            for fd in theirs:
                os.close(fd)
            theirs = []
            command._exit, _, command.pid = await _started(connection, name)
        except BaseException:
            for fd in theirs:
                os.close(fd)
            command._close()
            raise
        return command

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        try:
            while self._streams:
                some = False
                for fd, stream in list(self._streams.items()):
                    with contextlib.suppress(BlockingIOError):
                        data = os.read(fd, _CHUNK)
                        some = True
                        if data:
                            yield stream, data
                        elif self._streams.pop(fd, None):
                            os.close(fd)
                if not some and self._streams:
                    await readable(list(self._streams))
        except asyncio.CancelledError:
            self._abandon()
            raise

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._stdin >= 0:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await writable(self._stdin)
            except BrokenPipeError:
                return

    async def close_stdin(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    async def wait(self) -> Exit:
        try:
            result = await super().wait()
        except asyncio.CancelledError:
            self._abandon()
            raise
        await self.close_stdin()
        return result

    async def kill(self) -> None:
        if not self._gone:
            await self._kill()
        await self.close_stdin()

    def _abandon(self) -> None:
        """End the tree without waiting. Descriptors stay open: another task may wait on them, and sees their end."""
        if not self._gone:
            self._connection.send({"op": "kill"})

    def _close(self) -> None:
        """Close the connection, so that the supervisor kills the tree, whatever happens to this console."""
        self._connection.close()
        for fd in (*self._streams, self._stdin):
            if fd >= 0:
                os.close(fd)
        self._streams, self._stdin, self._gone = {}, -1, True
        self._exit = self._exit or Exit(code=137, signal=9, reason="it was cancelled")


class Shell(_Guest):
    """A :class:`~sandbox_console.backends.base.Terminal` on a PTY inside the sandbox."""

    def __init__(self, connection: Connection, master: int) -> None:
        super().__init__(connection)
        self._master = master
        self._closing = False
        self._waits: set[asyncio.Future[None]] = set()
        os.set_blocking(master, False)

    def _close(self) -> None:
        self._connection.close()
        if self._master >= 0:
            os.close(self._master)
        self._master, self._gone, self._closing = -1, True, True
        self._exit = self._exit or Exit(code=129, signal=1, reason="it was hung up")

    @classmethod
    async def start(cls, connection: Connection, request: dict[str, Any], name: str) -> Shell:
        """Open the terminal and wait until the shell runs. Raises Unsupported, BackendError if there is none."""
        try:
            connection.request(request)
            failed, master, _ = await _started(connection, name)
            if failed:
                if master >= 0:
                    os.close(master)
                if len(request["candidates"]) > 1 and failed.code == _NOT_FOUND:
                    raise Unsupported(NO_SHELL, hint=NO_SHELL_HINT)  # noqa: TRY301 - the same clean-up
                raise BackendError(  # noqa: TRY301 - the same clean-up as for any other failure
                    f"no shell could be started in {name}: {failed.reason}", hint="name one that is in the image"
                )
        except BaseException:
            connection.close()
            raise
        return cls(connection, master)

    async def read(self) -> bytes:
        while not self._closing:
            try:
                return os.read(self._master, _CHUNK)
            except BlockingIOError:
                await readable([self._master], self._waits)
            except OSError:  # EIO: no process has the terminal open any more
                return b""
        return b""

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._closing:
            try:
                view = view[os.write(self._master, view) :]
            except BlockingIOError:
                await writable(self._master, self._waits)
            except OSError:
                return

    async def resize(self, cols: int, rows: int) -> None:
        if not self._closing:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def passed(self) -> PassedShell:
        return PassedShell(kind="pty", files=(os.dup(self._master), self._connection.duplicate()))

    def release(self) -> None:
        self._close()

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        for wait in list(self._waits):
            wake(wait)
        while self._waits:  # noqa: ASYNC110 - they let go of the descriptor before its number can be another's
            await asyncio.sleep(0)
        os.close(self._master)  # the kernel hangs up: SIGHUP to the shell and its foreground
        self._master = -1
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), _HANG_UP_S)
            if not self._gone:
                await self._kill()
        finally:
            self._close()
