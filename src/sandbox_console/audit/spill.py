"""Urgent rows that the database cannot take now: they wait in the reserve, and move there as soon as it can."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from sandbox_console.audit import chain, rows
from sandbox_console.audit.end_proof import EndProof
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.lock import Lock
from sandbox_console.audit.open_segment import ROOM, SQLITE_FULL, OpenSegment, unavailable
from sandbox_console.audit.reserve import Reserve
from sandbox_console.audit.rows import Chain, Draft, Row

BRIEF_S = 0.05
"""What the log's lock is kept for while another program has the database."""


class Spill:
    """One writer's rows in the reserve. Every method runs under the log's lock."""

    def __init__(
        self, layout: Layout, segment: OpenSegment, reserve: Reserve, proof: EndProof, log: Chain, lock: Lock
    ) -> None:
        self._layout, self._segment, self._reserve = layout, segment, reserve
        self._proof, self._log, self._lock = proof, log, lock
        self._told = False

    def put(self, drafts: Sequence[Draft]) -> list[Row]:
        """Chain rows into the reserve. Raises AuditUnavailable if it is full, too."""
        waiting = self._reserve.last()
        try:
            head = rows.position(waiting) if waiting else rows.head(self._segment.there())
            made = rows.chained(drafts, head, self._log.mac())
            self._reserve.add(made)
        except (OSError, sqlite3.Error) as error:
            raise unavailable(error, self._layout.reserve) from error
        self._proof.tell_head(rows.position(made[-1]))
        return made

    def tell_once(self) -> None:
        """Say, once until the reserve is empty again, who has the database."""
        if not self._told:
            self._told = True
            self._lock.waits(f"{self._segment.holder()} has it; what is done is recorded in the reserve")

    def drain(self) -> None:
        """Move the rows into the database. A crash between commit and clear leaves rows that are known."""
        if not self._reserve.holding:
            return
        if self._segment.room() < ROOM:
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = SQLITE_FULL
            raise full
        last, prev = rows.head(self._segment.there())
        fresh = [row for row in self._reserve.rows() if row[0] > last]
        if fresh and fresh[0][chain.PREV] == prev and all(map(self._authentic, fresh)):
            self._log.commit(fresh)
        self._reserve.clear()
        self._told = False

    def drain_if_free(self) -> None:
        """Move the rows if nobody keeps the database."""
        with suppress(sqlite3.Error, OSError):
            if self._reserve.holding:
                self._segment.be_patient(BRIEF_S)
                self.drain()

    def _authentic(self, row: Row) -> bool:
        """Whether a console wrote a row for this segment."""
        return row[chain.MAC :] == ((mac(row[chain.HASH]),) if (mac := self._log.mac()) else ())
