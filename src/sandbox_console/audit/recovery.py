"""What consoles left to be recorded: urgent rows beside the log, and attempts whose process is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress

from msgspec import structs

from sandbox_console.audit import rows, schema, segments, sessions
from sandbox_console.audit.end_proof import MISSED, REFUSED, EndProof
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.open_segment import OpenSegment
from sandbox_console.audit.rows import Chain, Draft, Row
from sandbox_console.audit.urgent_rows import UrgentRows, noted_in
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import Kind, Outcome


class Recovery:
    """Records what was left. Every method runs under the log's lock."""

    def __init__(
        self, layout: Layout, keys: Keys, segment: OpenSegment, proof: EndProof, chain: Chain, actor: str, session: str
    ) -> None:
        self._layout, self._keys, self._segment, self._proof, self._chain = layout, keys, segment, proof, chain
        self._actor, self._session = actor, session

    def move(self, urgent: UrgentRows) -> None:
        """Give the urgent rows of a session their places in the chain. Raises sqlite3.Error.

        A file that cannot be read stays, and verify() counts it.
        """
        if not (urgent.waiting or urgent.path.exists()):
            return
        with suppress(OSError, ValueError), urgent.taken() as (drafts, refused):
            if missing := urgent.missing(drafts):
                self._chain.tell(MISSED, {"file": urgent.path.name, "rows": missing})
            # A console may have died before it could remove the file, and an old line may have been copied into it.
            if left := {number: draft for number, draft in drafts.items() if not self._is_in_log(draft)}:
                urgent.note(self._place(left))
            if refused:
                self._chain.tell(REFUSED, {"file": urgent.path.name, "lines": refused})

    def close_dead_sessions(self) -> None:
        """End the attempts of sessions whose process is gone as unknown."""
        dead = set(sessions.dead(self._layout.sessions)) - {self._session}
        if not dead:
            return
        self._segment.follow()  # another console may have begun the next segment and died in it
        dead = {session for session in dead if self._is_moved(session)}
        drafts = [
            Draft(Kind.UNKNOWN, self._actor, self._session, row[2], row[3], row[4], row[0], row[5], Outcome.UNKNOWN,
                  body={"reason": "the console's process ended before it could record the outcome"})
            for row in schema.open_attempts(self._segment.there()) if row[1] in dead
        ]  # fmt: skip
        # Each is committed by itself, because the second of two drafts in one append belongs to the first.
        for draft in drafts:
            self._chain.add(draft)
        sessions.forget(self._layout.sessions, dead)

    def _is_moved(self, session: str) -> bool:
        """Move the urgent rows of a dead session. Returns whether none is left."""
        path = self._layout.urgent(session)
        with suppress(sqlite3.Error, AuditUnavailable):
            self.move(UrgentRows(path, self._keys, noted_in(path.with_suffix(".lock"))))
        return not path.exists()

    def _place(self, drafts: Mapping[int, Draft]) -> dict[int, int]:
        """Commit rows that had only numbers. Returns their seqs."""
        head = self._proof.compared(rows.head(self._segment.there()))
        places = {number: seq for seq, number in enumerate(drafts, head[0] + 1)}
        made: list[Row] = []
        for draft in drafts.values():
            ref = None if draft.ref is None else places.get(draft.ref, draft.ref)
            if ref is not None and ref < 0:  # its line was cut out of the file, or moved before
                ref = self._attempt(draft)
            after = rows.position(made[-1]) if made else head
            made += rows.chained([structs.replace(draft, ref=ref)], after, self._chain.mac())
        self._chain.commit(made)
        return places

    def _is_in_log(self, draft: Draft) -> bool:
        """Whether a row has been moved before, also into a segment that is sealed by now."""
        if rows.is_in(self._segment.there(), draft):
            return True
        for index in self._layout.indices()[-2::-1]:
            # One that cannot be read is what verify() tells.
            with suppress(sqlite3.Error), closing(segments.connect_to_read(self._layout.segment(index))) as db:
                if rows.is_in(db, draft):
                    return True
                if _ended(db) < draft.at_ns:  # a row is moved after it was written
                    return False
        return False

    def _attempt(self, draft: Draft) -> int | None:
        """The place of the attempt that a row ends; None if there is none."""
        sql = "SELECT seq FROM record WHERE action = ? AND session = ? AND request_id = ? AND kind = ?"
        told = draft.action, draft.session, draft.request_id, str(Kind.ATTEMPT)
        found = self._segment.there().execute(sql, told).fetchone()
        return None if found is None else int(found[0])


def _ended(db: sqlite3.Connection) -> int:
    """The time of a segment's newest row, in nanoseconds."""
    [newest] = db.execute("SELECT coalesce(max(ts_ns), 0) FROM record").fetchone()
    return int(newest)
