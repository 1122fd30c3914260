"""Proof of where the log ends, kept outside the database: the head and the anchors."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sandbox_console.audit import rows, schema
from sandbox_console.audit.anchors import Anchors
from sandbox_console.audit.head import Head, HeadFile
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.open_segment import OpenSegment
from sandbox_console.audit.reserve import Reserve

ANCHOR_EVERY, ANCHOR_S = 100, 60.0
CHANGED, UNANCHORED, FOREIGN, REWRITTEN = "log-changed", "anchors-missing", "anchors-changed", "pages-changed"
UNDIGESTED, PLANTED = "digests-missing", "file-planted"
REFUSED, MISSED = "urgent-refused", "urgent-missing"
"""What a checkpoint records because no later verification could notice it."""


class EndProof:
    """One writer's head and anchors. Every method runs under the log's lock.

    ``tell`` commits a checkpoint row with an action and a body. ``mine`` is the last row that this process committed.
    ``digested`` is the row after which the digests of the pages were written, according to the head.
    """

    def __init__(
        self, layout: Layout, segment: OpenSegment, anchors: Anchors, reserve: Reserve,
        tell: Callable[[str, dict[str, Any]], None],
    ) -> None:  # fmt: skip
        self.anchors = anchors
        self.mine: rows.Position | None = None
        self.digested = 0
        self._layout, self._segment, self._reserve, self._tell = layout, segment, reserve, tell
        self._keys = anchors.keys
        self._heads = HeadFile(layout.head, anchors.keys)
        self._anchored = 0
        self._anchored_at = time.monotonic()

    def due(self, seq: int) -> bool:
        """Whether an anchor is due, by the rows or the seconds since the last one."""
        return seq - self._anchored >= ANCHOR_EVERY or time.monotonic() - self._anchored_at >= ANCHOR_S

    def tell_head(self, position: rows.Position) -> None:
        """Write the head's file beside the database."""
        with suppress(OSError):  # an old head does not look like a cut log; the next append notices a missing one
            seq, digest = position
            console, index = self._segment.console, self._segment.index
            self._heads.write(Head(console, index, seq, digest.hex(), self._anchored, digested=self.digested))

    def tell_digested(self, seq: int) -> None:
        """Note in the head that the digests of the pages after this row are on disk."""
        if seq != self.digested:
            self.digested = seq
            self.tell_head(self._end())

    def meet_head(self) -> None:
        """Learn what another console wrote in the head."""
        if self._heads.changed():
            self._meet_head(self._end())

    def compared(self, head: rows.Position) -> rows.Position:
        """The head to follow. If the last row that this process wrote is missing or different, that is recorded first.

        Later rows would hide a cut. Nothing is read while nobody else writes, because the head is that row then.
        """
        if self._heads.changed():
            self._meet_head(head)
            head = self._end()
        if self.mine is None or head == self.mine:
            return head
        db, (seq, digest) = self._segment.there(), self.mine
        [found] = db.execute("SELECT hash FROM record WHERE seq = ?", (seq,)).fetchone() or [None]
        if found == digest or seq < schema.head_of(db).first_seq:
            return head
        self._tell(CHANGED, {"wrote": seq, "hash": digest.hex(), "found": head[0]})
        return rows.head(db)

    def _meet_head(self, position: rows.Position) -> None:
        """Check a head that another console or somebody else wrote: it must not be ahead of the log."""
        head, _ = self._heads.read()
        if head is None:
            self._tell(UNANCHORED, {"missing": [self._layout.head.name], "rows": position[0]})
            self._heads.prepare()
            self.tell_head(self._end())
            return
        self._anchored = max(self._anchored, head.anchored)
        self.digested = head.digested
        waiting = self._reserve.last() if self._reserve.holding else None
        if head.console == self._segment.console and head.seq > max(position[0], waiting[0] if waiting else 0):
            self._tell(CHANGED, {"wrote": head.seq, "hash": head.hash, "found": position[0]})

    def missing(self) -> dict[str, Any]:
        """Make a missing key and head. Returns what was missing, which must be recorded before new files hide it."""
        seq, digest = self._end()
        parts = (self._layout.key, self._layout.anchors, *([self._layout.head] if self._segment.form > 1 else []))
        gone = [path.name for path in parts if not path.exists()]
        self._keys.make(self._segment.form if schema.head_of(self._segment.there()).index == 1 else 1)
        with suppress(OSError):  # the disk is full: the next writer creates it
            self._heads.prepare()
        if not (gone and seq and schema.signs(self._segment.there())):
            return {}
        self.tell_head((seq, digest))
        return {"missing": gone, "rows": seq}

    def begin(self) -> None:
        """Write a first anchor if there is none."""
        with suppress(OSError):
            self.anchors.prepare()
            if self.anchors.last() is None:
                self.anchor("first")

    def anchor(self, reason: str) -> None:
        """Sign the head, unless it is signed already. Raises OSError, sqlite3.Error."""
        self._anchored_at = time.monotonic()
        self.miss_newest_anchor()
        seq, digest = self._end()
        if seq > self._anchored and seq > 0:
            self.anchors.add(self._segment.console, self._segment.index, seq, digest, reason, sign=self._signs(reason))
            self._anchored = seq
            self.tell_head((seq, digest))

    def _signs(self, reason: str) -> bool:
        """Whether an anchor is signed for other machines. Importing the library for it costs a short command 20 ms."""
        lately = time.time_ns() - self.anchors.signed_at_ns() < ANCHOR_S * 1e9
        return self._segment.form > 1 and not (reason == "session" and lately)

    def miss_newest_anchor(self) -> None:
        """Record that an anchor of this log was removed while this process was writing."""
        self.meet_head()
        self._meet_foreign()
        last = self.anchors.last()
        signed = last.seq if last else 0
        if signed < self._anchored:
            self._tell(UNANCHORED, {"missing": [self._layout.anchors.name], "rows": self._anchored})
        self._anchored = signed

    def _meet_foreign(self) -> None:
        """Record bytes after the last anchor that no console left there; the next anchor would hide them."""
        foreign = 0
        with suppress(OSError, ValueError):
            foreign = self.anchors.foreign()
        if foreign:
            self._tell(FOREIGN, {"file": self._layout.anchors.name, "bytes": foreign})
            with suppress(OSError):
                self.anchors.cut_foreign()

    def _end(self) -> rows.Position:
        return rows.head(self._segment.there())
