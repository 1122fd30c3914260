"""Finds what would be lost if a sandbox was replaced: files outside its workspace, processes and shells."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import Struct

from sandbox_console.errors import ConsoleError
from sandbox_console.model.guest import FileKind, GuestProcess, PathChange
from sandbox_console.model.kept_shell import KeptShell
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service.reads.inspection import Inspection

PATIENCE_S = 5.0
"""Seconds to wait for the backend. The question that lists the losses waits for them."""

MEASURED = 100
"""The most files whose size is asked for, one request each."""

_AT_ONCE = 8
_INIT = "/sbin/docker-init"
"""An empty file, over which an engine mounts its own init, and the first word of that process."""

T = TypeVar("T")


class LostFile(Struct, frozen=True):
    """A file that differs from the image. ``size`` is in bytes, None if it was not asked for or is not known."""

    path: str
    size: int | None = None


class Losses(Struct, frozen=True):
    """What a replacement ends or drops.

    ``files`` were added or changed, the largest first; those whose size is known have ``known_bytes`` together.
    ``processes`` is the number besides the main one. The texts say why something is not known, empty if it is.
    """

    files: tuple[LostFile, ...] = ()
    files_unknown: str = ""
    processes: int = 0
    processes_unknown: str = ""
    shells: int = 0
    kept_shells: int = 0

    @property
    def known_bytes(self) -> int:
        """The sum of the known sizes."""
        return sum(one.size or 0 for one in self.files)


def kept_image(name: str, at: float) -> str:
    """A name for the image that keeps a sandbox's files, made at a time in seconds since the epoch."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "sandbox"
    return f"{plain}-kept:{datetime.fromtimestamp(at, UTC):%Y%m%d-%H%M%S}"


class LossReader:
    """Reads losses.

    ``sessions`` counts this console's open shells and forwards of a sandbox, ``kept`` lists its kept shells.
    """

    def __init__(
        self,
        inside: Inspection,
        sessions: Callable[[SandboxRef], int],
        kept: Callable[[SandboxRef], Awaitable[Sequence[KeptShell]]],
    ) -> None:
        self._inside, self._sessions, self._kept = inside, sessions, kept

    async def read(self, sandbox: Sandbox) -> Losses:
        """What would be lost now. A backend that does not answer within `PATIENCE_S` costs that much time."""
        (changes, no_changes), (processes, no_processes) = await asyncio.gather(
            _tried(self._inside.changes(sandbox.ref), []), _tried(self._processes(sandbox), [])
        )
        files = await self._files(sandbox, changes)
        kept = len(await self._kept(sandbox.ref))
        return Losses(
            files, no_changes, max(0, len(processes) - 1), no_processes, self._sessions(sandbox.ref), kept
        )  # fmt: skip

    async def _processes(self, sandbox: Sandbox) -> Sequence[GuestProcess]:
        found = await self._inside.processes(sandbox.ref) if sandbox.status.live else ()
        return [one for one in found if not one.command.startswith(f"{_INIT} ")]

    async def _files(self, sandbox: Sandbox, changes: Sequence[PathChange]) -> tuple[LostFile, ...]:
        """The added and changed files, without the folders above them and without what is mounted."""
        paths = [one.path for one in changes if one.how in ("added", "changed")]
        above = {path[:at] for path in paths for at, sign in enumerate(path) if sign == "/"}
        left = [path for path in paths if path not in above and path != _INIT and not path.startswith("/workspace/")]
        gate = asyncio.Semaphore(_AT_ONCE)

        async def measured(path: str) -> LostFile | None:
            async with gate:
                try:
                    found = await self._inside.stat(sandbox.ref, path)
                except ConsoleError:
                    return LostFile(path)
            return None if found.kind is FileKind.DIRECTORY else LostFile(path, found.size)

        first = left[:MEASURED]
        sized, _ = await _tried(asyncio.gather(*map(measured, first)), [LostFile(path) for path in first])
        known = [one for one in sized if one is not None]
        known.sort(key=lambda one: (-(one.size or 0), one.path))
        return (*known, *(LostFile(path) for path in left[MEASURED:]))


async def _tried(read: Awaitable[Sequence[T]], instead: Sequence[T]) -> tuple[Sequence[T], str]:
    """What a read returns, and why it returned nothing; ``instead`` in its place then."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await read, ""
    except ConsoleError as error:
        return instead, error.message
    except TimeoutError:
        return instead, f"no answer within {PATIENCE_S:g} s"
