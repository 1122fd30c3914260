"""The checkpoints of one writer: what it found changed or missing, which later rows or files would hide."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any

from sandbox_console.audit.end_proof import PLANTED, REWRITTEN, UNDIGESTED, EndProof
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.open_segment import OpenSegment
from sandbox_console.audit.page_digest_writer import PageDigests
from sandbox_console.audit.rows import Chain, Draft
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import Kind

MOST_TOLD = 20  # pages that are named in a row


class Checkpoints:
    """Records what was found. Every method runs under the log's lock."""

    def __init__(
        self, layout: Layout, segment: OpenSegment, pages: PageDigests, proof: EndProof, chain: Chain, actor: str,
        session: str,
    ) -> None:  # fmt: skip
        self._layout, self._segment, self._pages = layout, segment, pages
        self._proof, self._chain = proof, chain
        self._actor, self._session = actor, session

    def draft(self, action: str, body: dict[str, Any]) -> Draft:
        """A checkpoint that is not yet in the log."""
        return Draft(Kind.CHECKPOINT, self._actor, self._session, action, body=body)

    def tell_planted(self) -> None:
        """Record files that were found where the next segment belongs."""
        if self._segment.planted:
            self._chain.tell(PLANTED, {"kept": self._segment.planted})
            self._segment.planted = []

    def tell_changed_pages(self) -> None:
        """Record that the file was changed where no row is, because the next digests would hide it."""
        pages: list[int] = []
        with suppress(sqlite3.Error, OSError, ValueError):
            pages = self._pages.changed()
        if pages:
            body = {"file": self._layout.segment(self._segment.index).name, "pages": pages[:MOST_TOLD]}
            self._chain.add(self.draft(REWRITTEN, body | {"count": len(pages)}))

    def note_pages(self) -> None:
        """Checkpoint, and write the digests of the pages. Without them verify() compares less."""
        with suppress(sqlite3.Error, OSError, ValueError, AuditUnavailable):
            self.tell_lost_digests()
            if seq := self._pages.update():
                self._proof.tell_digested(seq)

    def tell_lost_digests(self) -> None:
        """Record that the digests in the file are not the last ones, because new ones or a manifest would hide it."""
        self._proof.meet_head()
        if problem := self._pages.lost(self._proof.digested):
            self._chain.tell(UNDIGESTED, {"file": self._layout.pages.name, "problem": problem})
            self._proof.tell_digested(0)
