"""The file of the alerts: its tables, its transactions, and what is done about a damaged one."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from sandbox_console.errors import ConsoleError
from sandbox_console.hostfs.own_files import leave_damaged

FILE = "alerts.db"
_BUSY_S = 10.0
_DAMAGE = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB
_SCHEMA = """
CREATE TABLE IF NOT EXISTS alert (
    id TEXT PRIMARY KEY, rule TEXT NOT NULL, subject TEXT NOT NULL, state TEXT NOT NULL, changed INTEGER NOT NULL,
    recorded TEXT NOT NULL DEFAULT '', ended REAL, data BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS alert_state ON alert (state);
CREATE INDEX IF NOT EXISTS alert_changed ON alert (changed);
CREATE TABLE IF NOT EXISTS told (
    rule TEXT, subject TEXT, alert TEXT NOT NULL, at REAL NOT NULL, kept INTEGER NOT NULL, PRIMARY KEY (rule, subject)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hits (
    rule TEXT, subject TEXT, data BLOB NOT NULL, PRIMARY KEY (rule, subject)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS place (
    source TEXT, subject TEXT, data BLOB NOT NULL, PRIMARY KEY (source, subject)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rule (name TEXT PRIMARY KEY, digest TEXT NOT NULL, since REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, at REAL NOT NULL, data BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS delivery (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT NOT NULL, channel TEXT NOT NULL, attempts INTEGER NOT NULL,
    next_at REAL NOT NULL, error TEXT NOT NULL, UNIQUE (message, channel)
) STRICT;
CREATE TABLE IF NOT EXISTS silence (
    id INTEGER PRIMARY KEY AUTOINCREMENT, until REAL NOT NULL, data BLOB NOT NULL
) STRICT;
"""


class AlertDatabase:
    """The file. Methods block and may be called on any thread; each raises ConsoleError if it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._folder / FILE

    def exists(self) -> bool:
        """Whether there is a file, so whether rules were ever watched or silenced here."""
        return self.path.exists()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def rows(self, sql: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a query; none if there is no file."""
        if not self.exists():
            return []
        with self.reading() as db:
            return db.execute(sql, values).fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        with self._lock:
            try:
                yield self._opened()
            except (sqlite3.Error, OSError, msgspec.MsgspecError) as error:
                raise self._unusable(error) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside, or nothing."""
        with self.reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.path.lexists(self.path) and not stat.S_ISREG(self.path.lstat().st_mode):
                leave_damaged(self.path, "it is not a file")
            try:
                self._db = self._connected()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF not in _DAMAGE:
                    raise
                leave_damaged(self.path, str(error))
                self._db = self._connected()
        return self._db

    def _connected(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(_SCHEMA)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _unusable(self, error: Exception) -> ConsoleError:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return ConsoleError(f"the alerts in {self.path} cannot be used: {reason}", hint="see the disk: df")
