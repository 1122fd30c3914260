"""Reads the actions that ended since the last look, for rules about the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from sandbox_console.model.audit import AuditEntry, AuditQuery
from sandbox_console.service.console import Console

OWN = "alert"
"""The verbs that begin like this are the rules' own, and never looked at: an alert about alerts would not end."""
_PAGE = 500


class Followed(Struct, frozen=True):
    """The newest row that was seen, and the attempts before it that had not ended."""

    newest: int
    open: tuple[int, ...] = ()


class AuditWatch:
    """The ended actions since a place, or at the first look since a time (Unix seconds).

    ``position`` is to be kept together with what came of them.
    """

    def __init__(self, console: Console, position: Followed | None, since: float) -> None:
        self._console = console
        self._begin = since if position is None else None
        self.position = position or Followed(0)

    async def ended(self) -> AsyncIterator[AuditEntry]:
        """Actions that ended since the last look. Raises AuditUnavailable."""
        newest = await self._console.audit_log.newest()
        if newest == self.position.newest:
            return
        before, still = self.position, list[int]()
        for seq in before.open:
            entry = await self._console.audit_entry(seq)
            if entry.end is None:
                still.append(seq)
            else:
                yield entry
        for entry in reversed(await self._since(before.newest)):
            if entry.attempt.seq > newest or entry.attempt.action.startswith(OWN):
                continue
            if entry.end is None:
                still.append(entry.attempt.seq)
            else:
                yield entry
        self.position, self._begin = Followed(newest, tuple(still)), None

    async def _since(self, seq: int) -> list[AuditEntry]:
        """The attempts after a row, newest first."""
        entries: list[AuditEntry] = []
        before: int | None = None
        while True:
            page = await self._console.history(AuditQuery(limit=_PAGE, before_seq=before, since=self._begin))
            fresh = [entry for entry in page if entry.attempt.seq > seq]
            entries += fresh
            if len(fresh) < _PAGE:
                return entries
            before = fresh[-1].attempt.seq
