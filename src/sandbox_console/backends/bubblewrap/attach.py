"""Attaching to a sandbox's main process: its output from now on. Its stdin is always empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing

from sandbox_console.model.log import LogItem, LogRecord, Stream
from sandbox_console.model.sandbox import Exit


class Attached:
    """A :class:`~sandbox_console.backends.base.Process` over the log; detaching leaves the process alone."""

    def __init__(self, log: AsyncIterator[Sequence[LogItem]], ended: Callable[[], Awaitable[Exit]]) -> None:
        self._log, self._ended = log, ended
        self._release = asyncio.Event()

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        gone = asyncio.ensure_future(self._release.wait())
        async with aclosing(self._log) as log:  # type: ignore[type-var]
            try:
                while True:
                    following = asyncio.ensure_future(anext(log, None))
                    try:
                        await asyncio.wait([following, gone], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not following.done():
                            following.cancel()
                            await asyncio.gather(following, return_exceptions=True)
                    if following.cancelled() or (batch := following.result()) is None:
                        return
                    for item in batch:
                        if isinstance(item, LogRecord):
                            yield item.stream, item.data
            finally:
                gone.cancel()

    async def write(self, data: bytes) -> None:
        """Does nothing: the main process reads an empty stdin."""

    async def close_stdin(self) -> None:
        """Does nothing: stdin is closed from the start."""

    async def wait(self) -> Exit:
        return Exit() if self._release.is_set() else await self._ended()

    async def kill(self) -> None:
        self._release.set()
