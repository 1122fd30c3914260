"""Writes the recording of a shell that a console holds, and finishes those of processes that were killed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox_console.recording.cast import Mask, Pending, append, make, mask_file

KILLED = "the process that wrote it was killed"


class Recorded(Struct, frozen=True):
    """A finished recording. ``cut`` says that it reached the size limit, ``problem`` why else it ended early."""

    id: str
    sha256: str
    size_bytes: int
    cut: bool = False
    problem: str = ""


class Writer:
    """Writes the output of one shell or command, and the terminal's sizes. ``limit`` is the name of ``cap_bytes``."""

    def __init__(self, path: Path, header: Mapping[str, Any], cap_bytes: int, limit: str = "recording.max_mib") -> None:
        self.path = path
        self.problem = ""
        self.pending = Pending(cap_bytes, limit=limit)
        self._header = header

    async def begin(self) -> None:
        """Create the file with mode 0600. Raises OSError."""
        line = json.dumps({"version": 2, **self._header}) + "\n"
        await asyncio.to_thread(make, self.path, line)

    async def output(self, data: bytes) -> None:
        """Record bytes of the PTY as they were shown. Raises OSError, once, if they cannot be written."""
        if not self.problem:
            self.pending.output(data)
        if self.pending.due:
            await self._write()

    def resize(self, cols: int, rows: int) -> None:
        """Record a new size."""
        if not self.problem:
            self.pending.resize(cols, rows)

    async def end(self, mask: Mask) -> Recorded:
        """Write the rest, and mask the whole."""
        if not self.problem:
            self.pending.output(b"", last=True)
        try:
            await self._write()
            digest, size = await asyncio.to_thread(_finish, self.path, mask)
        except OSError as error:
            return Recorded(self.path.stem, "", 0, self.pending.cut, self.problem or str(error))
        return Recorded(self.path.stem, digest, size, self.pending.cut, self.problem)

    async def discard(self) -> None:
        """Remove the recording of a shell that never opened."""
        await asyncio.to_thread(self.path.unlink, missing_ok=True)

    async def _write(self) -> None:
        lines = self.pending.take()
        if not lines:
            return
        try:
            await asyncio.to_thread(append, self.path, lines)
        except OSError as error:
            self.problem = f"{error.strerror or error}"
            raise


def finish_lost(path: Path, mask: Mask, problem: str = KILLED) -> Recorded:
    """Finish the recording of another process: mask it, without a line that a kill cut short.

    Blocks. Raises OSError, ValueError where it is no recording.
    """
    mask_file(path, mask, always=True)
    return Recorded(path.stem, digest_of(path), path.stat().st_size, problem=problem)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _finish(path: Path, mask: Mask) -> tuple[str, int]:
    mask_file(path, mask)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return digest_of(path), path.stat().st_size
