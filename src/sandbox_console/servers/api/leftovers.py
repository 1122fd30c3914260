"""Finds and removes the one-shot sandboxes of servers that were killed."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox_console.errors import ConsoleError
from sandbox_console.library import Console
from sandbox_console.model.actor import acting_as

RUN = "a2a.run"
"""The label of a one-shot sandbox; its value is the server that made it."""


class ServerLock:
    """The life of a server, as a lock that the kernel releases when the process is gone, however it ended."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self.id = secrets.token_hex(8)
        self._file = os.open(self._path(self.id), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def end(self) -> None:
        """Release the lock, once nothing of this server is left."""
        self._path(self.id).unlink(missing_ok=True)
        os.close(self._file)

    def goes_on(self, id: str) -> bool:
        """Whether the server with this id is alive."""
        if not id.isalnum():
            return False
        with suppress(OSError), _opened(self._path(id)) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            if id != self.id:
                self._path(id).unlink(missing_ok=True)
        return id == self.id

    def _path(self, id: str) -> Path:
        return self._folder / f"{id}.lock"


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


async def sweep(console: Console, life: ServerLock, backend: str) -> int:
    """Remove the sandboxes of dead servers. Returns how many. Those that cannot be removed stay."""
    sandboxes, _ = await console.list(backend)
    gone = 0
    for sandbox in sandboxes:
        made_by = sandbox.labels.get(RUN, "")
        if not (sandbox.managed and made_by) or await asyncio.to_thread(life.goes_on, made_by):
            continue
        with acting_as("api:sweep"), suppress(ConsoleError):
            await (await console.sandbox(sandbox.ref)).remove(force=True)
            gone += 1
    return gone
