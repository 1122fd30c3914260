"""A command in a sandbox whose output waits in a queue, and a shell made of such a command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from sandbox_console.model.cancellation import shielded
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

QUEUED = 16
"""How many pieces of output wait for a reader. Beyond that the command is held back."""
KILL_S = 10.0
"""How long a kill may take, in seconds, before it is given up."""


class QueuedProcess:
    """The reading end. A subclass fills the queue, ends it with None, and calls `_finish` once the exit is known."""

    def __init__(self) -> None:
        self._out: asyncio.Queue[tuple[Stream, bytes] | None] = asyncio.Queue(QUEUED)
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._killed = False

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        while (chunk := await self._out.get()) is not None:
            yield chunk
        self._out.put_nowait(None)  # later calls also get the end

    async def wait(self) -> Exit:
        return await shielded(self._end)

    def _finish(self, end: Exit) -> None:
        if not self._end.done():
            self._end.set_result(end)

    def _drain(self) -> None:
        """Throw away what nobody reads any more, and end the output."""
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                self._out.get_nowait()
        self._out.put_nowait(None)


class _OnTerminal(Protocol):
    def output(self) -> AsyncIterator[tuple[Stream, bytes]]: ...

    async def write(self, data: bytes) -> None: ...

    async def resize(self, cols: int, rows: int) -> None: ...

    async def wait(self) -> Exit: ...

    async def kill(self) -> None: ...


class ProcessTerminal:
    """A shell: a command on a PTY, whose output is one stream."""

    def __init__(self, process: _OnTerminal) -> None:
        self._process = process
        self._output = process.output()

    async def read(self) -> bytes:
        async for _, data in self._output:
            return data
        return b""

    async def write(self, data: bytes) -> None:
        await self._process.write(data)

    async def resize(self, cols: int, rows: int) -> None:
        await self._process.resize(cols, rows)

    async def wait(self) -> Exit:
        return await self._process.wait()

    async def close(self) -> None:
        await self._process.kill()
