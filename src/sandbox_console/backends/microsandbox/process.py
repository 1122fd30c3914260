"""A command in a microVM: the SDK's stream of events as a process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from sandbox_console.backends.common.queued_process import KILL_S, QueuedProcess
from sandbox_console.backends.microsandbox.sdk import result
from sandbox_console.errors import BackendError, ConsoleError
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

CHUNK = 256 * 1024
_STREAMS = {"stdout": Stream.STDOUT, "stderr": Stream.STDERR}
_CODES = {2: 127, 13: 126, 8: 126, 20: 127}
"""Exit codes for the errno of a command that cannot be run: ENOENT, EACCES, ENOEXEC, ENOTDIR."""

Sweep = Callable[[int], Awaitable[None]]


class MicrosandboxProcess(QueuedProcess):
    """One exec. ``sweep`` kills what is left of the session led by the given guest pid."""

    def __init__(self, handle: Any, sweep: Sweep) -> None:
        super().__init__()
        self._handle = handle
        self._sweep = sweep
        self._stdin = handle.take_stdin()
        self._pid = 0
        self._pump = asyncio.create_task(self._read())

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            if self._stdin is None or self._end.done():
                return
            writing = asyncio.ensure_future(self._stdin.write(data[at : at + CHUNK]))
            # A command that has ended accepts no more input, and the SDK might wait for it for ever.
            await asyncio.wait({writing, self._end}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                writing.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                writing.result()

    async def close_stdin(self) -> None:
        stdin, self._stdin = self._stdin, None
        if stdin is not None and not self._end.done():
            with contextlib.suppress(Exception):  # a guest that closed its end is no error
                await result(stdin.close())

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of its terminal."""
        with contextlib.suppress(Exception):  # a shell that has ended has no size
            await result(self._handle.resize(rows, cols))

    async def kill(self) -> None:
        if self._killed:
            return
        self._killed = True
        with contextlib.suppress(Exception):  # it may have ended by itself
            async with asyncio.timeout(KILL_S):
                await result(self._handle.kill())
        if self._pid:
            with contextlib.suppress(ConsoleError, TimeoutError):
                async with asyncio.timeout(KILL_S):
                    await self._sweep(self._pid)
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        self._finish(Exit(137, 9))
        self._drain()

    async def _read(self) -> None:
        end = Exit(137, 9, reason="the sandbox ended")
        try:
            while (event := await result(self._handle.recv())) is not None:
                kind = str(event.event_type)
                if kind == "started":
                    self._pid = event.pid or 0
                elif kind in _STREAMS:
                    await self._put(_STREAMS[kind], event.data or b"")
                elif kind == "exited":
                    end = Exit(137, 9) if self._killed and (event.code or 0) < 0 else _exit(event.code)
                elif kind == "failed":
                    await self._put(Stream.STDERR, (event.data or b"it cannot be run") + b"\n")
                    end = Exit(_CODES.get(event.code or 0, 126))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDK has one class for a sandbox that ended and for all else
            end = Exit(137, 9, reason=f"the sandbox ended: {error}")
        self._finish(end)
        await self._out.put(None)

    async def _put(self, stream: Stream, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            await self._out.put((stream, data[at : at + CHUNK]))


def _exit(code: int | None) -> Exit:
    if code is None:
        raise BackendError("the runtime reported an end without an exit code")
    if code < 0:
        return Exit(128, reason="ended by a signal; the runtime does not say which")
    return Exit(code & 255)
