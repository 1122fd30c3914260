"""Leaves out of records what concerns sandboxes that the acting person may not see: audit rows, recordings, shells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import structs

from sandbox_console.errors import ConsoleError, NotFound
from sandbox_console.model.access import access
from sandbox_console.model.actor import acting
from sandbox_console.model.audit import AuditEntry, AuditQuery
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.reads.fleet import Fleet

T = TypeVar("T")

_PAGE = 200
_PAGES_MOST = 50
"""Pages of rows that are read for one query of somebody who sees few of them: 10,000 rows."""


class VisibleRecords:
    """What the acting person may know of the records. What is about a sandbox that is gone is for those who see all."""

    def __init__(self, fleet: Fleet, audit_log: AuditLog) -> None:
        self._fleet, self._audit_log = fleet, audit_log

    async def of_sandboxes(self, records: Iterable[T], ref: Callable[[T], object]) -> list[T]:
        """The records whose sandbox may be seen. ``ref`` gives a record's sandbox, as a ref or as its text."""
        if not access().labels:
            return list(records)
        known = await self._refs()
        return [record for record in records if str(ref(record)) in known]

    async def history(self, query: AuditQuery) -> Sequence[AuditEntry]:
        """Recorded actions, newest first: the person's own, and those on sandboxes that may be seen."""
        if not access().labels:
            return await self._audit_log.entries(query)
        known, found = await self._refs(), list[AuditEntry]()
        page = structs.replace(query, limit=_PAGE)
        for _ in range(_PAGES_MOST):
            entries = await self._audit_log.entries(page)
            found += [entry for entry in entries if self._may_read(entry, known)]
            if len(found) >= query.limit or len(entries) < _PAGE:
                break
            page = structs.replace(page, before_seq=entries[-1].attempt.seq)
        return found[: query.limit]

    async def entry(self, seq: int) -> AuditEntry:
        """One recorded action. Raises NotFound, also for one that may not be seen."""
        entry = await self._audit_log.entry(seq)
        if access().labels and not self._may_read(entry, await self._refs()):
            raise NotFound(f"the audit log has no row {seq}", hint="sandbox-console audit ls")
        return entry

    async def may_enter(self, ref: SandboxRef) -> bool:
        """Whether a session in a sandbox may go on: its label may have changed. If nobody knows, it may."""
        if not access().labels:
            return True
        try:
            await self._fleet.inspect(ref)
        except NotFound:
            return False
        except ConsoleError:
            return True
        return True

    def _may_read(self, entry: AuditEntry, known: frozenset[str]) -> bool:
        own = acting() or self._audit_log.actor
        actor = entry.attempt.actor
        ended = {entry.end.target} if entry.end else set()  # a create has its sandbox's ref there
        mine = actor == own or bool((person := person_of(own)) and person == person_of(actor))
        return mine or entry.attempt.target in known or bool(ended & known)

    async def _refs(self) -> frozenset[str]:
        try:
            sandboxes, _ = await self._fleet.brief()
        except ConsoleError:
            return frozenset()
        return frozenset(str(sandbox.ref) for sandbox in sandboxes)


def person_of(actor: str) -> str:
    """The person behind an actor of the page, the API or MCP; empty for others, whose names are of another kind.

    Every session of the page has an actor of its own: ``browser:NAME.SESSION@ADDRESS``.
    """
    kind, _, name = actor.partition(":")
    if kind == "browser":
        return name.rpartition("@")[0].rpartition(".")[0]
    return name.partition(" for ")[0] if kind in ("api", "mcp") else ""
