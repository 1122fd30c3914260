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
from sandbox_console.model.sandbox import HealthState

RUN = "a2a.run"
"""The label of a one-shot sandbox; its value is the server that made it."""

AGAIN_S = 30.0
"""Seconds until a backend that did not answer is asked again for what a killed server left there."""


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


class Sweeper:
    """Removes the sandboxes of dead servers, at first and again until each backend has answered."""

    def __init__(self, console: Console, life: ServerLock, backend: str) -> None:
        self._console, self._life, self._backend = console, life, backend
        self._again: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Sweep once. Returns how many were removed. Those that cannot be removed stay."""
        gone, everywhere = await self._sweep()
        if not everywhere:
            self._again = asyncio.create_task(self._go_on())
        return gone

    async def close(self) -> None:
        """Sweep no more."""
        if self._again is not None:
            self._again.cancel()
            await asyncio.gather(self._again, return_exceptions=True)

    async def _go_on(self) -> None:
        everywhere = False
        while not everywhere:
            await asyncio.sleep(AGAIN_S)
            with suppress(ConsoleError):
                _, everywhere = await self._sweep()

    async def _sweep(self) -> tuple[int, bool]:
        sandboxes, healths = await self._console.list(self._backend)
        gone = 0
        for sandbox in sandboxes:
            made_by = sandbox.labels.get(RUN, "")
            if not (sandbox.managed and made_by) or await asyncio.to_thread(self._life.goes_on, made_by):
                continue
            with acting_as("api:sweep"), suppress(ConsoleError):
                await (await self._console.sandbox(sandbox.ref)).remove(force=True)
                gone += 1
        return gone, all(health.state != HealthState.UNREACHABLE for health in healths)
