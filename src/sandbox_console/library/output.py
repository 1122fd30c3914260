"""Where a command's output may go: into the result, into a file, or to whoever iterates."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Self

from sandbox_console.model.log import Stream

Output = os.PathLike[str] | IO[bytes] | None


class Files:
    """Files that take one or both streams whole; ``problem`` is what writing one raised.

    A path is made or emptied, and closed at the end; an open file is written from where it stands, and stays open.
    """

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self.problem: Exception | None = None
        self._given = {Stream.STDOUT: stdout, Stream.STDERR: stderr}
        self._files: dict[Stream, IO[bytes]] = {}
        self._open = ExitStack()

    @property
    def wanted(self) -> bool:
        """Whether any stream goes to a file."""
        return any(one is not None for one in self._given.values())

    async def __aenter__(self) -> Self:
        if not self.wanted:
            return self
        try:
            await asyncio.to_thread(self._enter)
        except BaseException:
            self._open.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.wanted:
            await asyncio.to_thread(self._open.close)

    def _enter(self) -> None:
        for stream, given in self._given.items():
            if isinstance(given, os.PathLike):
                self._files[stream] = self._open.enter_context(Path(given).open("wb"))  # noqa: SIM115 - closed with the stack
            elif given is not None:
                self._files[stream] = given

    async def take(self, stream: Stream, data: bytes) -> bool:
        """Write a chunk, off the event loop; False where the stream has no file."""
        file = self._files.get(stream)
        if file is None:
            return False
        try:
            await asyncio.to_thread(file.write, data)
        except Exception as error:
            self.problem = error
            raise
        return True
