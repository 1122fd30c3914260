"""The main process of a fake sandbox, as seen after attaching: its output from now on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from sandbox_console.model.cancellation import shielded
from sandbox_console.model.log import LogItem, LogRecord, Stream
from sandbox_console.model.sandbox import Exit


class FakeAttached:
    """Its output is what ``FakeBackend.say`` makes the process write. ``typed`` is everything that was sent to it."""

    def __init__(self) -> None:
        self.typed = b""
        self._out: asyncio.Queue[tuple[Stream, bytes] | None] = asyncio.Queue()
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def hear(self, items: Iterable[LogItem]) -> None:
        """Pass on what the process writes."""
        for item in items:
            if isinstance(item, LogRecord) and not self._end.done():
                self._out.put_nowait((item.stream, item.data))

    def end(self, end: Exit | None) -> None:
        """Note that the process has ended."""
        if not self._end.done():
            self._end.set_result(end or Exit())
            self._out.put_nowait(None)

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        while (chunk := await self._out.get()) is not None:
            yield chunk

    async def write(self, data: bytes) -> None:
        if not self._end.done():
            self.typed += data

    async def close_stdin(self) -> None:
        """Do nothing: nothing waits for the end of the input."""

    async def wait(self) -> Exit:
        return await shielded(self._end)

    async def kill(self) -> None:
        """Detach; the process keeps running."""
        self.end(Exit())
