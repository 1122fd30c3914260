"""A command whose output a server sends when it has ended, in one answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable

from msgspec import Struct

from sandbox_console.errors import ConsoleError
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

_CHUNK = 256 << 10


class Whole(Struct, frozen=True):
    """The answer: how it ended, and its output."""

    exit: Exit
    stdout: bytes = b""
    stderr: bytes = b""


ENDED = Whole(Exit(137, 9, reason="the sandbox ended"))
"""The answer for a command whose sandbox ended meanwhile, so that the server has none."""


class BufferedProcess:
    """One command. Ending it drops the connection; whether the command then ends is the server's matter."""

    def __init__(self, asked: Awaitable[Whole]) -> None:
        self._asked = asyncio.ensure_future(asked)
        self._asked.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody may wait for it

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """The output, once the command has ended. Raises what the request raised."""
        try:
            found = await shielded(self._asked)
        except asyncio.CancelledError:
            if self._asked.cancelled():
                return
            raise
        for stream, data in ((Stream.STDOUT, found.stdout), (Stream.STDERR, found.stderr)):
            for at in range(0, len(data), _CHUNK):
                yield stream, data[at : at + _CHUNK]

    async def write(self, data: bytes) -> None:
        """It has no stdin, so nothing is sent."""

    async def close_stdin(self) -> None:
        """It has no stdin."""

    async def wait(self) -> Exit:
        """Wait for its end. Raises what the request raised."""
        try:
            return (await shielded(self._asked)).exit
        except asyncio.CancelledError:
            if self._asked.cancelled():
                return Exit(137, 9, reason="the console dropped the connection")
            raise

    async def kill(self) -> None:
        """Drop the connection."""
        self._asked.cancel()
        with contextlib.suppress(ConsoleError, asyncio.CancelledError):
            await asyncio.wait([self._asked])
