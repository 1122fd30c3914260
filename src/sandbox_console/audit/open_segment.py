"""The segment being written, which is the newest. A new one is begun when it is full or damaged."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from sandbox_console.audit import schema, segments, sessions
from sandbox_console.audit.anchors import Anchors
from sandbox_console.audit.keys import KeyRefused
from sandbox_console.audit.layout import PLANTED, Layout
from sandbox_console.errors import AuditUnavailable
from sandbox_console.hostfs import file_lock
from sandbox_console.hostfs.own_files import set_aside

ROOM = 2 * 1024 * 1024
"""Bytes. With less free space than this, the disk counts as full."""

SQLITE_FULL = 13
_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_IOERR, _SQLITE_CANTOPEN = 5, 6, 10, 14


class OpenSegment:
    """The writing connection to the newest segment. Every method runs under the log's lock.

    ``index`` is its number; ``form`` and ``console`` are from its first table. ``planted`` names the files that were
    set aside and are not recorded yet. ``left`` is called when a damaged segment is left behind.
    """

    def __init__(self, layout: Layout, anchors: Anchors, left: Callable[[], None]) -> None:
        self.layout, self._anchors, self._left = layout, anchors, left
        self.index = 0
        self.form, self.console = 1, ""
        self.planted: list[str] = []
        self._db: sqlite3.Connection | None = None
        self._frozen = False
        self._patience_s = -1.0
        self._identity = (0, 0)

    def follow(self) -> None:
        """Switch to the newest segment, and check that its file was not renamed, as rows would silently be lost."""
        if self._db is None:
            self.open()
        if self.layout.segment(self.index + 1).exists():
            self.release()
            self.open()
        if _identity(self.layout.segment(self.index)) != self._identity:
            raise AuditUnavailable(
                f"the audit log {self.layout.segment(self.index)} was moved or replaced while the console was open",
                hint="put the file back, or restart the console to go on with the new one",
            )
        if schema.sealed(self.there()):
            segments.follow_on(self.there(), self.layout, self.index, self._anchors)
            self.release()
            self.open()

    def open(self) -> None:
        """Open the newest segment, or create one if there is none. Raises sqlite3.Error, OSError."""
        self.index = self.layout.newest()
        path = self.layout.segment(self.index)
        self.set_aside_foreign(path)
        if not path.exists() or path.stat().st_size == 0:
            segments.make(path, schema.new_log())
        try:
            self._db = segments.connect(path)
        except sqlite3.Error as error:
            if segments.is_damage(error):
                self.leave(str(error))
                return
            if not self.full(error):
                raise
            self._db, self._frozen = segments.connect_frozen(path), True
        self._identity = _identity(path)
        self._patience_s = -1.0  # the connection keeps its own wait
        self.form, self.console = schema.form(self._db), schema.head_of(self._db).console
        path.chmod(0o600)

    def set_aside_foreign(self, path: Path) -> None:
        """Rename files beside a segment that SQLite would read and that are not its own. Raises OSError."""
        for one in segments.foreign(path):
            with suppress(FileNotFoundError):
                self.planted.append(set_aside(one, PLANTED).name)

    def mend(self) -> None:
        """Check the file after an unclean end, and begin a new segment if it is damaged."""
        if not any(True for _ in sessions.dead(self.layout.sessions)):
            return
        if problem := segments.damage(self.there()):
            self.leave(problem)

    def leave(self, problem: str) -> None:
        """Continue in a new segment, linked to this damaged one. Raises AuditUnavailable."""
        self._left()
        self.release()
        try:
            segments.leave_damaged(self.layout, self.index, problem, self._anchors)
        except OSError as error:
            raise unavailable(error, self.layout.segment(self.index)) from error
        self.open()

    def thaw(self) -> None:
        """Open the segment for writing, if the disk was too full to do so before."""
        if self._frozen:
            db = segments.connect(self.layout.segment(self.index))
            self.release()
            self._db, self._patience_s = db, -1.0

    def full(self, error: Exception) -> bool:
        """Whether the disk is full: SQLite says so, or it cannot write a file and there is no space for one."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (_SQLITE_IOERR, _SQLITE_CANTOPEN):
            return self.room() < ROOM
        return code == SQLITE_FULL

    def room(self) -> int:
        """Free bytes on the segment's disk."""
        found = os.statvfs(self.layout.folder)
        return found.f_bavail * found.f_frsize

    def checkpoint(self) -> int:
        """Move the write-ahead log into the file, as far as no reader prevents it.

        Returns the number of its frames; -1 if that is not possible.
        """
        with suppress(sqlite3.Error, AuditUnavailable):
            _, frames, _ = self.there().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return int(frames)
        return -1

    def settle(self) -> None:
        """Move the rest of each sealed segment's write-ahead log into its file."""
        for index in self.layout.indices()[:-1]:
            path = self.layout.segment(index)
            with suppress(sqlite3.Error, OSError, AuditUnavailable):
                if path.with_name(path.name + "-wal").stat().st_size:
                    self.set_aside_foreign(path)
                    with closing(segments.connect(path)) as db:
                        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def size(self) -> int:
        """The size of the database in bytes."""
        [pages] = self.there().execute("PRAGMA page_count").fetchone()
        [page] = self.there().execute("PRAGMA page_size").fetchone()
        return int(pages * page)

    def there(self) -> sqlite3.Connection:
        """The connection. Raises AuditUnavailable if it is closed."""
        if self._db is None:
            raise AuditUnavailable("the audit log is closed")
        return self._db

    def release(self) -> None:
        """Close it."""
        if self._db is not None:
            db, self._db, self._frozen = self._db, None, False
            with suppress(sqlite3.Error):
                db.close()

    def be_patient(self, wait_s: float) -> None:
        """Set how long SQLite waits for another program's lock. Consoles lock the file only under the log's lock."""
        if self._db is not None and wait_s != self._patience_s:
            self._db.execute(f"PRAGMA busy_timeout = {wait_s * 1000:.0f}")
            self._patience_s = wait_s

    def holder(self) -> str:
        """Which program holds a lock on the file, in words."""
        path = self.layout.segment(self.index)
        return file_lock.holder(path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))


def unavailable(error: Exception, path: Path) -> AuditUnavailable:
    """An SQLite or file error as one of the console's errors."""
    if busy(error):
        who = file_lock.holder(path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
        return AuditUnavailable(f"the audit log {path} is locked by {who}", hint="wait for it, or end it")
    if isinstance(error, KeyRefused):
        return AuditUnavailable(f"the audit log's key is refused: {error}", hint=error.hint)
    return AuditUnavailable(
        f"the audit log {path} cannot be used: {error}",
        hint=f"{path.parent} must be writable, on a disk with space; nothing is changed until then",
    )


def busy(error: Exception) -> bool:
    """Whether another program holds a lock on the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (_SQLITE_BUSY, _SQLITE_LOCKED)


def _identity(path: Path) -> tuple[int, int]:
    try:
        st = path.stat()
    except OSError:
        return (0, 0)
    return (st.st_dev, st.st_ino)
