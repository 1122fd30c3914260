"""Reserves disk space, so that outcomes and actions that stop things are recorded even when the disk is full.

The file is filled once, so that overwriting it needs no new block even if others fill the disk. Rows are written to
it as they would be in the database, and move there when there is room again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from sandbox_console.audit.chain import HASH, MAC, PREV
from sandbox_console.hostfs.own_files import open_own, read_own

BYTES = 8 * 1024 * 1024
"""Enough for about 20,000 rows."""

EMERGENCY = frozenset({"stop", "kill", "pause", "resume", "egress-deny", "quarantine"})
"""Verbs that may use the reserve: each takes something away from a sandbox, or undoes a pause."""

_MOST_BYTES = 64 << 20  # of the whole file, which has 8 MiB
_ROW_MOST = 1024 * 1024  # a command's arguments cannot be longer

Row = tuple[Any, ...]


class Reserve:
    """The file, used under the log's lock. Each row is a JSON line with its blobs in hex; a NUL ends them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fill(self) -> bool:
        """Create or extend the file. Returns whether it is complete. A full disk is not an error here."""
        with suppress(OSError):
            if self._path.stat().st_size >= BYTES:
                return True
        fresh = self._path.with_suffix(".new")
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                for _ in range(BYTES // 65536):
                    file.write(bytes(65536))  # blocks of fallocate(2) must be converted when written
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            return False
        return True

    @property
    def holding(self) -> bool:
        """Whether rows are waiting in it."""
        try:
            with open_own(self._path, follow=True) as file:
                return os.pread(file.fileno(), 1, 0) == b"{"
        except OSError:
            return False

    def rows(self) -> list[Row]:
        """The waiting rows, oldest first. A last row that a crash cut off was never acknowledged."""
        try:
            content = read_own(self._path, _MOST_BYTES, follow=True).split(b"\0", 1)[0]
        except OSError:  # no console writes to a log with anything but a file there, and verify() refuses it
            return []
        return list(takewhile(bool, map(_parsed, content.splitlines())))  # type: ignore[arg-type]

    def last(self) -> Row | None:
        """The newest waiting row."""
        try:
            with open_own(self._path, follow=True) as file:
                end = self._end(file.fileno())
                tail = os.pread(file.fileno(), min(end, _ROW_MOST), max(0, end - _ROW_MOST))
        except OSError:
            return None
        return next((row for line in reversed(tail.splitlines()) if (row := _parsed(line))), None)

    def add(self, rows: list[Row]) -> None:
        """Append rows, on disk when this returns. Raises OSError if it is full or missing."""
        lines = b"".join(
            json.dumps({"row": [*row[:PREV], *map(bytes.hex, row[PREV:])]}, separators=(",", ":")).encode() + b"\n"
            for row in rows
        )
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            at = self._end(fd)
            if at + len(lines) >= os.fstat(fd).st_size:
                raise OSError("the reserve is spent")
            # The NUL ends the rows. After it there may be rows that moved to the database long ago.
            if os.pwrite(fd, lines + b"\0", at) != len(lines) + 1:
                raise OSError("the reserve was written in part")
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def clear(self) -> None:
        """Forget the rows, but keep the space."""
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(fd, b"\0", 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)

    @staticmethod
    def _end(fd: int) -> int:
        at = 0
        while block := os.pread(fd, 65536, at):
            found = block.find(b"\0")
            if found >= 0:
                return at + found
            at += len(block)
        return at


def _parsed(line: bytes) -> Row | None:
    try:
        columns = json.loads(line)["row"]
        row = (*columns[:PREV], *map(bytes.fromhex, columns[PREV:]))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    return row if len(row) in (HASH + 1, MAC + 1) and isinstance(row[0], int) else None
