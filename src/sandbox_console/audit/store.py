"""The writing end of the log. An append is one function under one lock, which the journal runs on a thread."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sandbox_console.audit import lock, rows, schema, segments
from sandbox_console.audit.anchors import Anchors
from sandbox_console.audit.checkpoints import Checkpoints
from sandbox_console.audit.end_proof import UNANCHORED, EndProof
from sandbox_console.audit.keys import KeyRefused
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.lock import TELL_S, WAIT_S, Lock, LockHeld
from sandbox_console.audit.open_segment import OpenSegment, busy, unavailable
from sandbox_console.audit.page_digest_writer import PageDigests
from sandbox_console.audit.recovery import Recovery
from sandbox_console.audit.reserve import Reserve
from sandbox_console.audit.retention import RetentionPolicy, remove_segment, too_old
from sandbox_console.audit.rows import Draft, Row
from sandbox_console.audit.spill import BRIEF_S, Spill
from sandbox_console.audit.urgent_rows import Claim, UrgentRows
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import Kind

CHECKPOINT_EVERY = 500  # appends; a WAL of about 2 MiB
URGENT_WORK = "stop, kill, pause, resume and egress deny still work and are recorded"


class _Busy(Exception):
    """Another program, which the text names, has the database."""


class Store:
    """One process's writing end of the log. Every method runs on one thread and raises AuditUnavailable.

    If the disk is full, or another program keeps the database locked, urgent rows (`Draft.urgent`) go into the reserve,
    and from there into the database as soon as that is possible. Nothing else is accepted until then. While another
    process keeps the log's own lock, they go into the session's `UrgentRows`.
    """

    def __init__(
        self,
        layout: Layout,
        keep: RetentionPolicy,
        actor: str,
        session: str,
        urgent: UrgentRows,
        waits: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``urgent`` are the session's own rows beside the log.

        ``waits`` is called with a text that says what an append is waiting for.
        """
        if damaged := layout.damaged():
            hint = f"nothing is changed until it is away: look at it, then move it out of {layout.folder}"
            raise AuditUnavailable(f"the audit log cannot be used: {damaged}", hint=hint)
        self._layout, self._keep = layout, keep
        self._actor, self._session = actor, session
        self.sealed: list[int] = []  # by this process
        anchors = Anchors(layout.anchors, layout.key)
        self._anchors, self._keys = anchors, anchors.keys
        self._reserve = Reserve(layout.reserve)
        self._lock = Lock(layout.lock)
        self._lock.waits = waits
        self._appends = 0
        self._segment = OpenSegment(layout, anchors, self._left)
        self._proof = EndProof(layout, self._segment, anchors, self._reserve, self.tell)
        pages = PageDigests(layout, self._segment, self._keys)
        self._checkpoints = Checkpoints(layout, self._segment, pages, self._proof, self, actor, session)
        self._spill = Spill(layout, self._segment, self._reserve, self._proof, self, self._lock)
        self.urgent = urgent
        self._recovery = Recovery(layout, self._keys, self._segment, self._proof, self, actor, session)
        self._begun = False

    def begin(self) -> bool:
        """Open the log, and end the attempts of dead sessions as unknown.

        Returns False if another process keeps the lock for URGENT_S: then the next append begins.
        """
        try:
            with self._lock.held(lock.URGENT_S):
                self._begin()
        except LockHeld:
            return False
        return True

    def append(self, *drafts: Draft, claim: Claim | None = None) -> list[int]:
        """Commit rows in one transaction and return their seqs. If it raises, nothing was committed.

        It does nothing if somebody else takes the ``claim`` before it has the lock. While another program has the
        database, the log's own lock is free most of the time, so that what is urgent can be recorded in the reserve.
        """
        began, reported = time.monotonic(), False
        while True:
            waited = time.monotonic() - began
            try:
                with self._lock.held(given_up=claim.taken if claim else lambda: False):
                    if claim and not claim.take():
                        return []
                    claim = None
                    self._begin()
                    return self._append(drafts, may_wait=waited < WAIT_S)
            except _Busy as error:
                if waited > TELL_S and not reported:
                    reported = True
                    self._lock.waits(f"waiting for {error}")
                time.sleep(BRIEF_S)

    def anchor(self, reason: str) -> None:
        """Sign the head now, unless it is already signed."""
        with self._lock.held():
            self._begin()
            self._segment.follow()
            self._spill.drain_if_free()
            self._proof.anchor(reason)
            if reason == "time":
                self._checkpoints.note_pages()

    def settle(self) -> None:
        """Move the rest of a sealed segment's write-ahead log into its file, if a reader prevented that before."""
        with self._lock.held():
            self._segment.settle()

    def close(self) -> None:
        """Anchor, checkpoint and close under the lock, because closing the last connection checkpoints, too.

        If another process keeps the lock, all that is committed is on disk; the next console signs it.
        """
        if not (self._begun or self.urgent.waiting):
            self._lock.release()
            return
        try:
            with suppress(LockHeld), self._lock.held(lock.URGENT_S if self._begun else 0.0):
                with suppress(AuditUnavailable, sqlite3.Error, OSError):  # the next console signs it
                    self._begin()
                    self._segment.follow()
                    self._spill.drain_if_free()
                    self._recovery.move(self.urgent)
                    self._proof.anchor("session")
                self._checkpoints.note_pages()
        finally:
            self._segment.release()
            self._lock.release()

    # Methods below run under the lock

    def _begin(self) -> None:
        """Open the log, unless that has been done."""
        if self._begun:
            return
        try:
            self._open()
            self._recovery.close_dead_sessions()
        except BaseException as error:
            self._segment.release()
            if isinstance(error, (sqlite3.Error, OSError, ValueError)):
                raise unavailable(error, self._layout.segment(self._segment.index or 1)) from error
            raise
        self._begun = True

    def _open(self) -> None:
        """Open the newest segment, and record what is missing or was changed since the last console closed it."""
        self._segment.open()
        self._segment.mend()
        self._reserve.fill()
        if missing := self._proof.missing():
            self._append([self._checkpoints.draft(UNANCHORED, missing)])
        with suppress(sqlite3.Error, OSError):  # the disk is full: it is recorded before new ones are written
            self._checkpoints.tell_planted()
            self._checkpoints.tell_lost_digests()
        self._checkpoints.tell_changed_pages()
        self._proof.begin()

    def _append(self, drafts: Sequence[Draft], *, may_wait: bool = False) -> list[int]:
        """Append under the lock. Raises _Busy if the caller should let go of the lock and try again."""
        urgent = all(draft.urgent for draft in drafts)
        try:
            # Urgent rows do not let go: they wait once, and go into the reserve; those after them need not wait again.
            self._segment.be_patient(TELL_S if urgent and not self._reserve.holding else BRIEF_S)
            another = self._keys.load_or_make()
            self._segment.follow()
            self._segment.thaw()
            self._spill.drain()
            self._recovery.move(self.urgent)
            self._checkpoints.tell_planted()
            if another:
                self.tell(UNANCHORED, {"missing": [self._layout.key.name], "rows": rows.head(self._segment.there())[0]})
            drafts = [self.urgent.placed(draft) for draft in drafts]
            made = rows.chained(drafts, self._proof.compared(rows.head(self._segment.there())), self.mac())
            self.commit(made)
        except KeyRefused as error:
            raise unavailable(error, self._layout.key) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if busy(error) and not urgent and may_wait:
                raise _Busy(self._segment.holder()) from error
            if any((draft.ref or 0) < 0 for draft in drafts):  # the row that it belongs to is beside the log, too
                return self.urgent.put(drafts)
            made = self._after_trouble(error, drafts, urgent=urgent)
        self._appends += len(made)
        self._keep_up(made[-1])
        return [row[0] for row in made]

    def _after_trouble(self, error: Exception, drafts: Sequence[Draft], *, urgent: bool) -> list[Row]:
        if segments.is_damage(error):
            self._segment.leave(str(error))
            made = rows.chained(drafts, rows.head(self._segment.there()), self.mac())
            self.commit(made)
            return made
        if urgent and (self._segment.full(error) or busy(error)):
            made = self._spill.put(drafts)
            if busy(error):
                self._spill.tell_once()
            return made
        if busy(error):
            raise AuditUnavailable(
                f"the audit log {self._layout.segment(self._segment.index)} is locked by {self._segment.holder()}",
                hint=f"wait for it, or end it; {URGENT_WORK}",
            ) from error
        if self._segment.full(error):
            raise AuditUnavailable(
                f"the disk of the audit log {self._layout.folder} is full: {error}",
                hint=f"free some space; {URGENT_WORK}",
            ) from error
        raise unavailable(error, self._layout.segment(self._segment.index)) from error

    def commit(self, made: Sequence[Row]) -> None:
        """Insert rows in one transaction. Raises sqlite3.Error."""
        db = self._segment.there()
        try:
            db.execute("BEGIN IMMEDIATE")
            rows.insert(db, made)
            db.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        self._proof.mine = rows.position(made[-1])
        self._proof.tell_head(self._proof.mine)

    def _left(self) -> None:
        self._proof.mine = None

    def add(self, draft: Draft) -> None:
        """Append one row."""
        self._append([draft])

    def mac(self) -> Callable[[bytes], bytes] | None:
        """What makes the MACs of the segment's rows; None if they have none."""
        return self._keys.of_row if self._segment.form > 1 else None

    def tell(self, action: str, body: dict[str, Any]) -> None:
        """Commit a checkpoint."""
        self.commit(rows.chained([self._checkpoints.draft(action, body)], rows.head(self._segment.there()), self.mac()))

    def _keep_up(self, last: Row) -> None:
        """Do the work after a commit. The rows are safe by now, so no problem here may reach the caller."""
        with suppress(sqlite3.Error, OSError, AuditUnavailable):
            if self._proof.due(last[0]):
                self._proof.anchor("count")
            if self._appends >= CHECKPOINT_EVERY:
                self._appends = 0
                self._checkpoints.note_pages()
                self._reserve.fill()
            if self._segment.size() > self._keep.segment_bytes:
                self._rotate()

    def _rotate(self) -> None:
        self._proof.miss_newest_anchor()  # a sealed segment takes no row that would record it
        self._checkpoints.tell_lost_digests()
        db = self._segment.there()
        draft = Draft(Kind.ROTATE, self._actor, self._session, "rotate", body={"next": self._segment.index + 1})
        try:
            db.execute("BEGIN IMMEDIATE")
            rows.insert(db, rows.chained([draft], rows.head(db), self.mac()))
            schema.seal(db)
            db.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        self._proof.anchor("rotate")
        self._segment.checkpoint()
        self.sealed.append(self._segment.index)
        self._segment.follow()
        if old := too_old(self._layout, self._keep, self._anchors):
            # The removal is recorded first: if a segment is missing without such a row, somebody else took it.
            self._append([self._checkpoints.draft("retention", {"removed": old})])
            self._proof.anchor(
                "retention"
            )  # signed, so that the public key can verify the row before anything is removed
            for segment in old:
                remove_segment(self._layout.segment(segment["segment"]), self._keep.archive)
