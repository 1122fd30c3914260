"""Finds requests to allow a host: rows of the audit log that nobody has answered yet.

An assistant's ``ask_host`` leaves a refused row of the verb ``egress``. A later change of that sandbox's rules that
names the pattern, either way, is its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from sandbox_console.errors import ConsoleError
from sandbox_console.model import hosts
from sandbox_console.model.action import ChangeEgress, DenyEgress
from sandbox_console.model.audit import AuditEntry, AuditQuery, Outcome
from sandbox_console.model.egress import ASKED, EgressRecord
from sandbox_console.model.egress_rules import key_of
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.reads.hub import Hub

RULE = "mcp.ask"
"""The rule named by a row of the audit log that is such a request."""
LOOK_S = 2.0
"""How often the log's newest row is checked (1 ms each), as another process may make a request."""
FIRST_S = 0.5
"""When it is first checked: after the first lists, as a request is announced once its sandbox is known."""
_ROWS_MOST = 500


class HostRequest(Struct, frozen=True):
    """A requested pattern. ``target`` is the sandbox's ref as text, ``at`` is in seconds since the epoch."""

    seq: int
    target: str
    pattern: str
    actor: str
    at: float

    def record(self, sandbox: str) -> EgressRecord:
        """The request as a record for the feed of hosts, with the requester in place of a rule."""
        host, port = self.pattern, 443
        with suppress(ValueError):
            parsed = hosts.parse(self.pattern, allow_ip=True)
            port = 443 if 443 in parsed.ports else min(parsed.ports)
            host = ("*." if parsed.wildcard else "") + parsed.host
        return EgressRecord(self.at, sandbox, host, port, allowed=False, reason=ASKED, rule=self.actor)


async def unanswered(audit_log: AuditLog) -> list[HostRequest]:
    """The requests without an answer, oldest first; none if the log cannot be read."""
    entries: list[AuditEntry] = []
    with suppress(ConsoleError, OSError):
        for verb in (ChangeEgress.verb, DenyEgress.verb):
            entries += await audit_log.entries(AuditQuery(limit=_ROWS_MOST, action=verb))
    return list(_open(sorted(entries, key=lambda entry: entry.attempt.seq)).values())


def _open(entries: Iterable[AuditEntry]) -> dict[tuple[str, object], HostRequest]:
    waiting: dict[tuple[str, object], HostRequest] = {}
    for entry in entries:
        row, end = entry.attempt, entry.end
        asks = end is not None and end.outcome == Outcome.DENIED and end.body.get("rule") == RULE
        if not asks and entry.outcome != Outcome.OK:
            continue
        for pattern in _patterns(row.body):
            waiting.pop((row.target, key_of(pattern)), None)
            if asks:
                at = row.at_ns / 1e9
                waiting[row.target, key_of(pattern)] = HostRequest(row.seq, row.target, pattern, row.actor, at)
    return waiting


def _patterns(body: Any) -> list[str]:
    return [one["pattern"] for one in body.get("add") or ()] + list(body.get("patterns") or ())


class HostRequests:
    """Calls ``take`` with each open request once its sandbox is known, until :meth:`close`."""

    def __init__(
        self, audit_log: AuditLog, hub: Hub, take: Callable[[SandboxRef, EgressRecord], Awaitable[bool]]
    ) -> None:
        self._audit_log, self._hub, self._take = audit_log, hub, take
        self._task: asyncio.Task[None] | None = None
        self._announced: set[int] = set()

    def start(self) -> None:
        """Look for requests from now on. Does nothing if already started."""
        if self._task is None:
            self._task = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        before, waiting = -1, list[HostRequest]()
        await asyncio.sleep(FIRST_S)
        while True:
            with suppress(ConsoleError, OSError):
                newest = await self._audit_log.newest()
                if newest != before:
                    before, waiting = newest, await unanswered(self._audit_log)
                waiting = [request for request in waiting if not await self._tell(request)]
            await asyncio.sleep(LOOK_S)

    async def _tell(self, ask: HostRequest) -> bool:
        if ask.seq in self._announced:
            return True
        for ref, sandbox in self._hub.sandboxes.items():
            if str(ref) == ask.target and await self._take(ref, ask.record(sandbox.name)):
                self._announced.add(ask.seq)
                return True
        return False
