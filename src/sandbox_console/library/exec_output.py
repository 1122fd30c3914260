"""Where the output of a command goes: into the result, into a file, or to an iterating caller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import IO, Self

from sandbox_console.hostfs.files import written
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.model.log import Stream

AskGround = Callable[[], Awaitable[GuestFolders]]
"""A function that returns what guests can change. No links are followed there."""

Output = os.PathLike[str] | IO[bytes] | None


class Files:
    """Files that take one or both streams as a whole. ``problem`` is the error of writing one.

    A file at a path is created or emptied, and closed at the end. An open file is written from its position on, and
    stays open.
    """

    def __init__(self, stdout: Output, stderr: Output, ground: AskGround) -> None:
        self.problem: Exception | None = None
        self._given = {Stream.STDOUT: stdout, Stream.STDERR: stderr}
        self._files: dict[Stream, IO[bytes]] = {}
        self._open = ExitStack()
        self._ground = ground

    @property
    def wanted(self) -> bool:
        """Whether any stream goes to a file."""
        return any(one is not None for one in self._given.values())

    async def __aenter__(self) -> Self:
        if not self.wanted:
            return self
        paths = any(isinstance(one, os.PathLike) for one in self._given.values())
        guest_folders = await self._ground() if paths else NOBODYS
        try:
            await asyncio.to_thread(self._enter, guest_folders)
        except BaseException:
            self._open.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.wanted:
            await asyncio.to_thread(self._open.close)

    def _enter(self, guest_folders: GuestFolders) -> None:
        for stream, given in self._given.items():
            if isinstance(given, os.PathLike):
                self._files[stream] = self._open.enter_context(written(os.fspath(given), guest_folders))
            elif given is not None:
                self._files[stream] = given

    async def take(self, stream: Stream, data: bytes) -> bool:
        """Write a chunk off the event loop. Returns False if the stream has no file."""
        file = self._files.get(stream)
        if file is None:
            return False
        try:
            await asyncio.to_thread(file.write, data)
        except Exception as error:
            self.problem = error
            raise
        return True
