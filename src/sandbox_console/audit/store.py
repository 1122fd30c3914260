"""The writing end of the log: an append is one function, under one lock. The journal runs it on a thread."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sandbox_console.audit import chain, rows, schema, segments, sessions
from sandbox_console.audit.anchors import Anchors
from sandbox_console.audit.head import HeadFile
from sandbox_console.audit.keys import KeyRefused
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.lock import TELL_S, WAIT_S, Lock, holder
from sandbox_console.audit.reserve import Reserve
from sandbox_console.audit.retention import Keep, take_away, too_old
from sandbox_console.audit.rows import Draft, Row
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import Kind, Outcome

CHECKPOINT_EVERY = 500  # appends; a WAL of about 2 MiB
ANCHOR_EVERY, ANCHOR_S = 100, 60.0
CHANGED, UNANCHORED = "log-changed", "anchors-missing"
"""What a checkpoint tells that no later verification could see by itself."""

URGENT_WORK = "stop, kill, pause, resume and egress deny still work and are recorded"

_ROOM = 2 * 1024 * 1024  # less free space than this is a full disk
_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_IOERR, _SQLITE_FULL, _SQLITE_CANTOPEN = 5, 6, 10, 13, 14


class Store:
    """One process's writing end of the log; every method runs on one thread and raises AuditUnavailable.

    Where the disk is full, what is urgent (`Draft.urgent`) goes into the reserve and from there into the
    database as soon as there is room; nothing else is taken until then.
    """

    def __init__(
        self, layout: Layout, keep: Keep, actor: str, session: str, waits: Callable[[str], None] = lambda _: None
    ) -> None:
        """``waits`` is told for whom an append waits, in words."""
        self._layout, self._keep = layout, keep
        self._actor, self._session = actor, session
        self.sealed: list[int] = []  # by this process
        self._anchors = Anchors(layout.anchors, layout.key)
        self._keys = self._anchors.keys
        self._heads = HeadFile(layout.head, self._keys)
        self._reserve = Reserve(layout.reserve)
        self._lock = Lock(layout.lock)
        self._lock.waits = waits
        self._appends = 0
        self._anchored = 0
        self._anchored_at = time.monotonic()
        self._db: sqlite3.Connection | None = None
        self._frozen = False
        self._index = 0
        self._form, self._console = 1, ""  # of the segment
        self._patience_s = -1.0
        self._identity = (0, 0)
        self._mine: rows.Place | None = None  # of the last row that this process committed
        try:
            with self._lock.held():
                self._open()
                self._mend()
                self._reserve.fill()
                self._begin_anchors()
        except BaseException as error:
            self._let_go()
            self._lock.release()
            if isinstance(error, (sqlite3.Error, OSError, ValueError)):
                raise unavailable(error, layout.segment(self._index or 1)) from error
            raise

    def append(self, *drafts: Draft) -> list[int]:
        """Commit rows in one transaction and give their seqs; where it raises, nothing was committed."""
        with self._lock.held():
            return self._append(drafts)

    def close_dead_sessions(self) -> int:
        """End as unknown the attempts of sessions whose process is gone; gives how many."""
        with self._lock.held():
            dead = set(sessions.dead(self._layout.sessions)) - {self._session}
            if not dead:
                return 0
            self._follow()  # another console may have gone on to the next segment, and died there
            drafts = [
                Draft(Kind.UNKNOWN, self._actor, self._session, row[2], row[3], row[4], row[0], row[5], Outcome.UNKNOWN,
                      body={"reason": "the console's process ended before it could record the outcome"})
                for row in schema.open_attempts(self._there()) if row[1] in dead
            ]  # fmt: skip
            # Each is committed alone: the second of two drafts at once belongs to the first.
            for draft in drafts:
                self._append([draft])
            sessions.forget(self._layout.sessions, dead)
            return len(drafts)

    def anchor(self, why: str) -> None:
        """Sign the head now, unless it is signed already."""
        with self._lock.held():
            self._follow()
            self._drain_if_free()
            self._anchor(why)

    def settle(self) -> None:
        """Move what a sealed segment's log of writes still holds into its file, where a reader kept it from going."""
        with self._lock.held():
            for index in self._layout.indices()[:-1]:
                path = self._layout.segment(index)
                with suppress(sqlite3.Error, OSError, AuditUnavailable):
                    if path.with_name(path.name + "-wal").stat().st_size:
                        with closing(segments.connect(path)) as db:
                            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Anchor, checkpoint and close under the lock: closing the last connection checkpoints as well."""
        try:
            with self._lock.held():
                with suppress(AuditUnavailable, sqlite3.Error):  # what cannot be signed now is signed by the next one
                    self._follow()
                    self._drain_if_free()
                    self._anchor("session")
                self._checkpoint()
                self._let_go()
        finally:
            self._lock.release()

    # Under the lock

    def _append(self, drafts: Sequence[Draft], *, again: bool = False) -> list[int]:
        urgent = all(draft.urgent for draft in drafts)
        try:
            self._be_patient(WAIT_S if again else TELL_S)
            another = self._load_key()
            self._follow()
            self._thaw()
            self._drain()
            if another:
                self._tell(UNANCHORED, {"missing": [self._layout.key.name], "rows": rows.head(self._there())[0]})
            made = rows.chained(drafts, self._compared(rows.head(self._there())), self._mac)
            self._commit(made)
        except KeyRefused as error:
            raise unavailable(error, self._layout.key) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if _busy(error) and not urgent and not again:
                self._lock.waits(self._holder())
                return self._append(drafts, again=True)
            made = self._after_trouble(error, drafts, urgent=urgent)
        self._appends += len(made)
        self._keep_up(made[-1])
        return [row[0] for row in made]

    def _after_trouble(self, error: Exception, drafts: Sequence[Draft], *, urgent: bool) -> list[Row]:
        if segments.is_damage(error):
            self._leave(str(error))
            made = rows.chained(drafts, rows.head(self._there()), self._mac)
            self._commit(made)
            return made
        if urgent and (self._full(error) or _busy(error)):
            return self._spill(drafts)
        if _busy(error):
            raise AuditUnavailable(
                f"the audit log {self._layout.segment(self._index)} is locked by {self._holder()}",
                hint=f"wait for it, or end it; {URGENT_WORK}",
            ) from error
        if self._full(error):
            raise AuditUnavailable(
                f"the disk of the audit log {self._layout.folder} is full: {error}",
                hint=f"free some space; {URGENT_WORK}",
            ) from error
        raise unavailable(error, self._layout.segment(self._index)) from error

    def _spill(self, drafts: Sequence[Draft]) -> list[Row]:
        waiting = self._reserve.last()
        try:
            made = rows.chained(drafts, rows.place(waiting) if waiting else rows.head(self._there()), self._mac)
            self._reserve.add(made)
        except (OSError, sqlite3.Error) as error:
            raise unavailable(error, self._layout.reserve) from error
        self._tell_head(rows.place(made[-1]))
        return made

    def _drain(self) -> None:
        """Move what waits in the reserve into the database; a crash between commit and clear leaves known rows."""
        if not self._reserve.holding:
            return
        if self._room() < _ROOM:
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = _SQLITE_FULL
            raise full
        last, prev = rows.head(self._there())
        fresh = [row for row in self._reserve.rows() if row[0] > last]
        if fresh and fresh[0][chain.PREV] == prev and all(map(self._authentic, fresh)):
            self._commit(fresh)
        self._reserve.clear()

    def _drain_if_free(self) -> None:
        with suppress(sqlite3.Error, OSError):
            if self._reserve.holding:
                self._be_patient(TELL_S)
                self._drain()

    def _be_patient(self, wait_s: float) -> None:
        """How long SQLite waits for another program's lock on the file: no console holds one outside the log's own."""
        if self._db is not None and wait_s != self._patience_s:
            self._db.execute(f"PRAGMA busy_timeout = {wait_s * 1000:.0f}")
            self._patience_s = wait_s

    def _holder(self) -> str:
        path = self._layout.segment(self._index)
        return holder(path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))

    def _commit(self, made: Sequence[Row]) -> None:
        db = self._there()
        try:
            db.execute("BEGIN IMMEDIATE")
            rows.insert(db, made)
            db.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        self._mine = rows.place(made[-1])
        self._tell_head(self._mine)

    @property
    def _mac(self) -> Callable[[bytes], bytes] | None:
        return self._keys.of_row if self._form > 1 else None

    def _authentic(self, row: Row) -> bool:
        """Whether a row that waited is one that a console wrote for this segment."""
        return row[chain.MAC :] == ((self._mac(row[chain.HASH]),) if self._mac else ())

    def _load_key(self) -> bool:
        """Have the key that is there; whether it is another than before, which is put on record."""
        try:
            return self._keys.load()
        except FileNotFoundError:
            self._keys.make()
            return True

    def _tell_head(self, place: rows.Place) -> None:
        with suppress(OSError):  # an older head is none that was cut; what is gone is noticed by the next append
            self._heads.write(self._console, self._index, *place, self._anchored)

    def _compared(self, head: rows.Place) -> rows.Place:
        """The head to follow. That the last row this process wrote is gone or another is put on record before.

        Later rows would hide a cut. Nothing is looked up while nobody else writes: the head is that row.
        """
        if self._heads.changed():
            self._meet_head(head)
            head = rows.head(self._there())
        if self._mine is None or head == self._mine:
            return head
        db, (seq, digest) = self._there(), self._mine
        [found] = db.execute("SELECT hash FROM record WHERE seq = ?", (seq,)).fetchone() or [None]
        if found == digest or seq < schema.head_of(db).first_seq:
            return head
        self._tell(CHANGED, {"wrote": seq, "hash": digest.hex(), "found": head[0]})
        return rows.head(db)

    def _meet_head(self, place: rows.Place) -> None:
        """Look at a head that another console told, or another hand: it must not be ahead of the log."""
        told, _ = self._heads.read()
        if told is None:
            self._tell(UNANCHORED, {"missing": [self._layout.head.name], "rows": place[0]})
            self._heads.prepare()
            self._tell_head(rows.head(self._there()))
            return
        self._anchored = max(self._anchored, told.anchored)
        waiting = self._reserve.last() if self._reserve.holding else None
        if told.console == self._console and told.seq > max(place[0], waiting[0] if waiting else 0):
            self._tell(CHANGED, {"wrote": told.seq, "hash": told.hash, "found": place[0]})

    def _tell(self, action: str, body: dict[str, Any]) -> None:
        draft = Draft(Kind.CHECKPOINT, self._actor, self._session, action, body=body)
        self._commit(rows.chained([draft], rows.head(self._there()), self._mac))

    def _begin_anchors(self) -> None:
        """Have key, head and anchors. That those of a log are gone is put on record: new ones would hide it."""
        seq, digest = rows.head(self._there())
        parts = (self._layout.key, self._layout.anchors, *([self._layout.head] if self._form > 1 else []))
        gone = [path.name for path in parts if not path.exists()]
        self._keys.make(self._form if schema.head_of(self._there()).index == 1 else 1)
        with suppress(OSError):  # a full disk: the next one to write has it
            self._heads.prepare()
        if gone and seq and schema.signs(self._there()):
            self._tell_head((seq, digest))
            told = {"missing": gone, "rows": seq}
            self._append([Draft(Kind.CHECKPOINT, self._actor, self._session, UNANCHORED, body=told)])
        with suppress(OSError):
            self._anchors.prepare()
            if self._anchors.last() is None:
                self._anchor("first")

    def _keep_up(self, last: Row) -> None:
        """What follows a commit: its rows are safe by now, so that no trouble here may reach the caller."""
        with suppress(sqlite3.Error, OSError, AuditUnavailable):
            if last[0] - self._anchored >= ANCHOR_EVERY or time.monotonic() - self._anchored_at >= ANCHOR_S:
                self._anchor("count")
            if self._appends >= CHECKPOINT_EVERY:
                self._appends = 0
                self._checkpoint()
                self._reserve.fill()
            if self._size() > self._keep.segment_bytes:
                self._rotate()

    def _anchor(self, why: str) -> None:
        self._anchored_at = time.monotonic()
        self._miss_newest_anchor()
        seq, digest = rows.head(self._there())
        if seq > self._anchored and seq > 0:
            self._anchors.add(self._console, self._index, seq, digest, why, sign=self._signs(why))
            self._anchored = seq
            self._tell_head((seq, digest))

    def _signs(self, why: str) -> bool:
        """Whether an anchor is signed for other machines too: to import what signs costs a short command 20 ms."""
        lately = time.time_ns() - self._anchors.signed_at_ns() < ANCHOR_S * 1e9
        return self._form > 1 and not (why == "session" and lately)

    def _miss_newest_anchor(self) -> None:
        """As `_miss_anchors`, of what went while this process writes."""
        if self._heads.changed():
            self._meet_head(rows.head(self._there()))
        last = self._anchors.last()
        signed = last.seq if last else 0
        if signed < self._anchored:
            self._tell(UNANCHORED, {"missing": [self._layout.anchors.name], "rows": self._anchored})
        self._anchored = signed

    def _rotate(self) -> None:
        self._miss_newest_anchor()  # a sealed segment takes no row that tells of it
        db = self._there()
        draft = Draft(Kind.ROTATE, self._actor, self._session, "rotate", body={"next": self._index + 1})
        try:
            db.execute("BEGIN IMMEDIATE")
            rows.insert(db, rows.chained([draft], rows.head(db), self._mac))
            schema.seal(db)
            db.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        self._anchor("rotate")
        self._checkpoint()
        self.sealed.append(self._index)
        self._follow()
        if old := too_old(self._layout, self._keep, self._anchors):
            # On record first: a segment that is missing without a row that tells of it was taken by somebody else.
            self._append([Draft(Kind.CHECKPOINT, self._actor, self._session, "retention", body={"removed": old})])
            for told in old:
                take_away(self._layout.segment(told["segment"]), self._keep.archive)

    def _follow(self) -> None:
        """Be on the newest segment, and on the file that was opened: a renamed one would swallow rows in silence."""
        if self._db is None:
            self._open()
        if self._layout.segment(self._index + 1).exists():
            self._let_go()
            self._open()
        if _identity(self._layout.segment(self._index)) != self._identity:
            raise AuditUnavailable(
                f"the audit log {self._layout.segment(self._index)} was moved or replaced while the console was open",
                hint="put the file back, or restart the console to go on with the new one",
            )
        if schema.sealed(self._there()):
            segments.follow_on(self._there(), self._layout, self._index, self._anchors)
            self._let_go()
            self._open()

    def _open(self) -> None:
        self._index = self._layout.newest()
        path = self._layout.segment(self._index)
        if not path.exists() or path.stat().st_size == 0:
            segments.make(path, schema.new_log())
        try:
            self._db = segments.connect(path)
        except sqlite3.Error as error:
            if segments.is_damage(error):
                self._leave(str(error))
                return
            if not self._full(error):
                raise
            self._db, self._frozen = segments.connect_frozen(path), True
        self._identity = _identity(path)
        self._patience_s = -1.0  # the connection's own
        self._form, self._console = schema.form(self._db), schema.head_of(self._db).console
        path.chmod(0o600)

    def _mend(self) -> None:
        """After an unclean end: check the file, and leave it for a new segment where it is damaged."""
        if not any(True for _ in sessions.dead(self._layout.sessions)):
            return
        if problem := segments.damage(self._there()):
            self._leave(problem)

    def _leave(self, problem: str) -> None:
        self._mine = None
        self._let_go()
        try:
            segments.leave_damaged(self._layout, self._index, problem, self._anchors)
        except OSError as error:
            raise unavailable(error, self._layout.segment(self._index)) from error
        self._open()

    def _thaw(self) -> None:
        """Be able to write, where the disk was too full to open the segment for it."""
        if self._frozen:
            db = segments.connect(self._layout.segment(self._index))
            self._let_go()
            self._db, self._patience_s = db, -1.0

    def _full(self, error: Exception) -> bool:
        """Whether the disk is full: SQLite says it, or cannot write or make a file and there is no room for one."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (_SQLITE_IOERR, _SQLITE_CANTOPEN):
            return self._room() < _ROOM
        return code == _SQLITE_FULL

    def _room(self) -> int:
        found = os.statvfs(self._layout.folder)
        return found.f_bavail * found.f_frsize

    def _checkpoint(self) -> None:
        with suppress(sqlite3.Error, AuditUnavailable):
            self._there().execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _size(self) -> int:
        [pages] = self._there().execute("PRAGMA page_count").fetchone()
        [page] = self._there().execute("PRAGMA page_size").fetchone()
        return int(pages * page)

    def _there(self) -> sqlite3.Connection:
        if self._db is None:
            raise AuditUnavailable("the audit log is closed")
        return self._db

    def _let_go(self) -> None:
        if self._db is not None:
            db, self._db, self._frozen = self._db, None, False
            with suppress(sqlite3.Error):
                db.close()


def unavailable(error: Exception, path: Path) -> AuditUnavailable:
    """An SQLite or file error in the console's words."""
    if _busy(error):
        who = holder(path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
        return AuditUnavailable(f"the audit log {path} is locked by {who}", hint="wait for it, or end it")
    if isinstance(error, KeyRefused):
        return AuditUnavailable(f"the audit log's key is refused: {error}", hint=error.hint)
    return AuditUnavailable(
        f"the audit log {path} cannot be used: {error}",
        hint=f"{path.parent} must be writable, on a disk with space; nothing is changed until then",
    )


def _busy(error: Exception) -> bool:
    """Whether another program holds a lock on the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (_SQLITE_BUSY, _SQLITE_LOCKED)


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)
