"""Writes the digests of the newest segment's pages, at the cost of the pages that have changed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from sandbox_console.audit import rows, schema
from sandbox_console.audit.anchors import sync_folder
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.open_segment import ROOM, OpenSegment
from sandbox_console.audit.page_digests import (
    SIZE,
    Digests,
    File,
    Head,
    block,
    content_of,
    file_when_written,
    lost,
    of_pages,
    read,
    text_of,
)
from sandbox_console.audit.rows import Position

_WAL_HEAD, _FRAME_HEAD = 32, 24  # bytes; https://www.sqlite.org/fileformat2.html#walformat


class PageDigests:
    """The writer's end. Every method runs under the log's lock and raises OSError, ValueError, sqlite3.Error."""

    def __init__(self, layout: Layout, segment: OpenSegment, keys: Keys) -> None:
        self._layout, self._segment, self._keys = layout, segment, keys
        self._last: Position | None = None

    def changed(self) -> list[int]:
        """The pages that were changed while no row was added. It compares only if somebody has written to the file."""
        if file_when_written(self._layout.pages) in (None, self._file()):
            return []
        digests, _ = read(self._layout.pages, self._keys)
        db = self._segment.there()
        if digests is None or not self._describes(digests.head, rows.head(db)):
            return []
        content = content_of(db)
        if content is None or digests.head.statistics != schema.statistics(db):
            return []
        return digests.differing(content)

    def lost(self, digested: int) -> str:
        """What is wrong with the digests that were written after row ``digested``; empty if they are there."""
        if not digested:
            return ""
        return lost(*read(self._layout.pages, self._keys), digested, self._layout.pages.name)

    def update(self) -> int:
        """Move the write-ahead log into the file, as far as no reader prevents it, and write new digests.

        Returns the row after which they were written; 0 if they are older than the last one.

        Only the pages that the write-ahead log has are read again, if nobody else has written to the file since the
        digests were written. No reset of the write-ahead log can then have lost a page.
        """
        db = self._segment.there()
        before, position = self._file(), rows.head(db)
        frames = self._segment.checkpoint()
        if position == self._last:
            return position[0]
        if self._segment.room() < ROOM:
            return 0
        digests, _ = read(self._layout.pages, self._keys)
        if digests is not None and digests.head.position == position and digests.head.file == self._file():
            self._last = position
            return position[0]
        each, page_bytes, count = self._made(db, digests, before, frames)
        if each is None:
            return 0
        self._write(position, page_bytes, count, each)
        self._last = position
        return position[0]

    def _made(
        self, db: sqlite3.Connection, digests: Digests | None, before: File, frames: int
    ) -> tuple[bytes | None, int, int]:
        """The digests of all pages, with the bytes and the number of the pages."""
        [count], [page_bytes] = (db.execute(f"PRAGMA page_{name}").fetchone() for name in ("count", "size"))
        each = None
        if digests is not None and self._follows(digests.head, before) and digests.head.page_bytes == page_bytes:
            each = _replaced(digests.each, self._wal, frames, count, page_bytes)
        if each is None:
            content = content_of(db)
            each = of_pages(content, page_bytes) if content is not None else None
        return each, page_bytes, count

    def _write(self, position: Position, page_bytes: int, count: int, each: bytes) -> None:
        """Write the whole file or nothing, on disk when this returns, because the head will say that it is there."""
        seq, digest = position
        head = Head(
            self._segment.console, self._segment.index, seq, digest.hex(), page_bytes, count,
            hashlib.sha256(each).hexdigest(), schema.statistics(self._segment.there()), self._stamp(),
        )  # fmt: skip
        head = msgspec.structs.replace(head, mac=self._keys.mac(text_of(head)))
        fresh = self._layout.pages.with_name(self._layout.pages.name + ".new")
        fresh.unlink(missing_ok=True)
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(block(head) + each)
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(self._layout.pages)
            sync_folder(self._layout.folder)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def _describes(self, head: Head, position: Position) -> bool:
        return self._is_of_segment(head) and head.position == position

    def _follows(self, head: Head, file: File) -> bool:
        return self._is_of_segment(head) and head.file == file

    def _is_of_segment(self, head: Head) -> bool:
        return (head.console, head.segment) == (self._segment.console, self._segment.index)

    @property
    def _path(self) -> Path:
        return self._layout.segment(self._segment.index)

    @property
    def _wal(self) -> Path:
        return self._path.with_name(self._path.name + "-wal")

    def _file(self) -> File:
        st = self._path.stat()
        return st.st_ino, st.st_size, st.st_mtime_ns

    def _stamp(self) -> File:
        """Give the file a time that no write gives it, so that each later write is noticed.

        The kernel takes the time of its last tick, up to 10 ms ago; two writes within a tick would leave the same. A
        file system that cannot keep the time exactly gets none, and all pages are read each time.
        """
        now = time.time_ns()
        os.utime(self._path, ns=(now, now))
        found = self._file()
        return found if found[2] == now else (0, 0, 0)


def _replaced(each: bytes, wal: Path, frames: int, count: int, page_bytes: int) -> bytes | None:
    """The digests with those of the pages in the first ``frames`` frames of the write-ahead log; None if some lack."""
    if frames < 0 or count * SIZE < len(each):
        return None
    with suppress(OSError), wal.open("rb") as file:
        last: dict[int, int] = {}
        for frame in range(frames):
            at = _WAL_HEAD + frame * (_FRAME_HEAD + page_bytes)
            last[int.from_bytes(os.pread(file.fileno(), 4, at))] = at + _FRAME_HEAD
        made = bytearray(each.ljust(count * SIZE, b"\0"))
        if any(page not in last for page in range(len(each) // SIZE + 1, count + 1)) or 0 in last:
            return None
        for page, at in last.items():
            digest = hashlib.sha256(os.pread(file.fileno(), page_bytes, at)).digest()
            made[(page - 1) * SIZE : page * SIZE] = digest
        return bytes(made) if len(made) == count * SIZE else None
    return each if not frames and len(each) == count * SIZE else None
