"""The SQLite file: an append is one function, under one lock. Synchronous: the journal runs it on a thread."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox_console.audit import schema, sessions
from sandbox_console.audit.chain import digest
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import Kind, Outcome

_LOCK_WAIT_S = 10.0
_CHECKPOINT_EVERY = 500  # appends; a WAL of about 2 MiB


@dataclass(frozen=True, slots=True)
class Draft:
    """A row before it has its place in the chain."""

    kind: Kind
    actor: str
    session: str
    action: str
    backend: str = ""
    target: str = ""
    ref: int | None = None
    request_id: str = ""
    outcome: str = ""
    dur_us: int | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


class Store:
    """One process's writing end of the log at ``path``; every method runs on the connection's own thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._db = connection
        self._path = path
        self._lock_fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._appends = 0
        try:
            with self._locked():
                schema.prepare(connection)
            path.chmod(0o600)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._identity = _identity(path)

    def append(self, *drafts: Draft) -> list[int]:
        """Commit rows in one transaction and give their seqs. Raises AuditUnavailable; then nothing was committed."""
        with self._locked():
            self._check_identity()
            return self._commit(drafts)

    def close_dead_sessions(self, folder: Path, actor: str, session: str) -> int:
        """End as unknown the attempts of sessions whose process is gone; gives how many."""
        with self._locked():
            self._check_identity()
            open_ = self._open_attempts()
            dead = {name for name in {row[1] for row in open_} if name != session and not sessions.alive(folder, name)}
            drafts = [
                Draft(Kind.UNKNOWN, actor, session, row[2], row[3], row[4], row[0], row[5], Outcome.UNKNOWN,
                      body={"reason": "the console's process ended before it could record the outcome"})
                for row in open_ if row[1] in dead
            ]  # fmt: skip
            return len(self._commit(drafts)) if drafts else 0

    def close(self) -> None:
        """Checkpoint and close under the lock: closing the last connection checkpoints as well."""
        try:
            with self._locked():
                self._checkpoint()
                self._db.close()
        finally:
            self.release()

    def release(self) -> None:
        """Let go of the lock's file."""
        os.close(self._lock_fd)

    def _open_attempts(self) -> list[tuple[Any, ...]]:
        return self._db.execute(
            "SELECT seq, session, action, backend, target, request_id FROM record a WHERE kind = 'attempt'"
            " AND NOT EXISTS (SELECT 1 FROM record e WHERE e.ref = a.seq AND e.kind IN ('outcome', 'unknown'))"
        ).fetchall()

    def _commit(self, drafts: tuple[Draft, ...] | list[Draft]) -> list[int]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            seqs = [self._insert(draft, first=drafts[0]) for draft in drafts]
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise unavailable(error, self._path) from error
        self._appends += len(seqs)
        if self._appends >= _CHECKPOINT_EVERY:
            self._checkpoint()
            self._appends = 0
        return seqs

    def _checkpoint(self) -> None:
        # The rows are committed by now: a full disk here must not tell the caller that they are not.
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _insert(self, draft: Draft, first: Draft) -> int:
        head: tuple[int, bytes] | None = self._db.execute(
            "SELECT seq, hash FROM record ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        if head is None:
            head = (0, bytes.fromhex(self._db.execute("SELECT value FROM meta WHERE key = 'genesis'").fetchone()[0]))
        seq, prev = head[0] + 1, head[1]
        # The second of two rows written at once belongs to the first: its seq is known only here.
        ref = seq - 1 if draft.ref is None and draft is not first else draft.ref
        columns = (
            seq, time.time_ns(), str(draft.kind), ref, draft.actor, draft.session, draft.request_id, draft.action,
            draft.backend, draft.target, str(draft.outcome), draft.dur_us, _canonical(draft.body),
        )  # fmt: skip
        marks = ",".join("?" * len(schema.COLUMNS))
        self._db.execute(f"INSERT INTO record VALUES ({marks})", (*columns, prev, digest(prev, columns)))  # noqa: S608
        return seq

    def _check_identity(self) -> None:
        if _identity(self._path) != self._identity:
            raise AuditUnavailable(
                f"the audit log {self._path} was moved or replaced while the console was open",
                hint="put the file back, or restart the console to go on with the new one",
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        deadline, pause = time.monotonic() + _LOCK_WAIT_S, 0.0002
        while True:
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AuditUnavailable(
                        f"the audit log {self._path} is locked by another process",
                        hint="find a stopped sandbox-console and end it",
                    ) from None
                time.sleep(pause)
                pause = min(pause * 2, 0.005)
        try:
            yield
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)


def unavailable(error: Exception, path: Path) -> AuditUnavailable:
    """An SQLite or file error in the console's words."""
    return AuditUnavailable(
        f"the audit log {path} cannot be used: {error}",
        hint=f"{path.parent} must be writable, on a disk with space; nothing is changed until then",
    )


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def _canonical(body: Mapping[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
