"""What a console knows of its fleet at one moment, and what has happened since it was opened, for monitoring."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from msgspec import Struct, structs

from sandbox_console.errors import ConsoleError
from sandbox_console.model.access import Access
from sandbox_console.model.alert import Alert
from sandbox_console.model.event import AuditChanged, Denied, Event
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef, Status
from sandbox_console.service.alerts.alerts import AlertBook
from sandbox_console.service.alerts.audit_watch import AuditWatch
from sandbox_console.service.alerts.conditions import failed
from sandbox_console.service.console import Console

_ACTIONS_MOST = 10_000
"""Verbs times outcomes are a few hundred. Another console of the same state could write more."""


class FleetStatus(Struct, frozen=True):
    """The fleet at one moment; ``at`` is in seconds since the epoch.

    A sandbox whose backend does not answer is there as it was last seen, with the status UNKNOWN. ``denied`` has how
    often each sandbox was refused a connection. ``refusals`` are all refusals by (backend, host), and ``actions`` the
    ended actions by (verb, outcome), both counted since the watch began. ``audit_problem`` is why the audit log cannot
    be read or written, ``audit_rows`` the number of its newest row, and ``unshipped`` how many rows have not reached
    the configured server (None without one).
    """

    at: float
    backends: tuple[BackendHealth, ...]
    sandboxes: tuple[Sandbox, ...]
    denied: Mapping[SandboxRef, int]
    refusals: Mapping[tuple[str, str], int]
    actions: Mapping[tuple[str, str], int]
    alerts: tuple[Alert, ...]
    audit_rows: int
    audit_problem: str = ""
    unshipped: int | None = None


class StatusWatch:
    """Follows a console and counts. Use it as an async context manager."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console = console
        self._clock = clock
        self._denied: dict[SandboxRef, int] = {}
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._actions: Counter[tuple[str, str]] = Counter()
        self._audit = AuditWatch(console, None, clock())
        self._audit_problem = ""
        self._reading = asyncio.Lock()
        self._book = AlertBook(console, clock)

    async def __aenter__(self) -> Self:
        self._subscription = self._console.watch()
        self._follower = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._follower.cancel()
        await asyncio.gather(self._follower, return_exceptions=True)
        self._subscription.close()
        self._book.close()

    async def read(self) -> FleetStatus:
        """The fleet now. Sources that cannot be read are reported in the result."""
        if self._follower.done():
            self._follower.result()  # a bug: nothing would be counted any more
        async with self._reading:
            problem = await self._count_actions()
            unshipped: int | None = None
            alerts: Sequence[Alert] = ()
            with suppress(ConsoleError):
                unshipped = await self._console.audit_log.unshipped()
            with suppress(ConsoleError):
                alerts = await self._book.alerts()
        hub = self._console.hub
        here = set(hub.sandboxes)
        return FleetStatus(
            self._clock(), tuple(hub.health.values()), tuple(map(self._seen, hub.sandboxes.values())),
            {ref: count for ref, count in self._denied.items() if ref in here}, dict(self._refusals),
            dict(self._actions), tuple(alerts), self._audit.position.newest, problem, unshipped,
        )  # fmt: skip

    def _seen(self, sandbox: Sandbox) -> Sandbox:
        """A sandbox as it can be known now: one that a silent backend had may be in any state."""
        health = self._console.hub.health.get((sandbox.ref.backend, sandbox.ref.host))
        if health is None or health.state is not HealthState.UNREACHABLE:
            return sandbox
        at = time.strftime(" until %Y-%m-%dT%H:%M:%SZ", time.gmtime(health.since)) if health.since else ""
        detail = f"last seen {sandbox.status}{at}: {health.reason}"
        return structs.replace(sandbox, status=Status.UNKNOWN, detail=detail)

    async def _count_actions(self) -> str:
        """Count what ended since the last look. Returns why that is not possible, or why nothing can be written."""
        try:
            async for entry in self._audit.ended():
                key = (entry.attempt.action, entry.outcome)
                if key in self._actions or len(self._actions) < _ACTIONS_MOST:
                    self._actions[key] += 1
        except ConsoleError as error:
            return error.message
        return self._audit_problem

    async def _follow(self) -> None:
        async for event in self._subscription:
            self._hear(event)

    def _hear(self, event: Event) -> None:
        match event:
            case Denied(ref, count):
                new = max(0, count - self._denied.get(ref, 0))
                self._refusals[ref.backend, ref.host] += new
                self._denied[ref] = count
                self._forget()
            case AuditChanged(reason):
                self._audit_problem = reason
            case _:
                pass

    def _forget(self) -> None:
        """Drop counts of sandboxes that are gone, when they are most of what is kept."""
        here = self._console.hub.sandboxes
        if len(self._denied) > 2 * len(here) + 100:
            self._denied = {ref: count for ref, count in self._denied.items() if ref in here}


def seen_by(status: FleetStatus, rights: Access) -> FleetStatus:
    """The part for a person: with labels, only these sandboxes and what concerns them, and no counts of all."""
    if not rights.labels:
        return status
    sandboxes = tuple(one for one in status.sandboxes if rights.sees(one.labels))
    refs = {one.ref for one in sandboxes}
    names = {str(ref) for ref in refs}
    denied = {ref: count for ref, count in status.denied.items() if ref in refs}
    alerts = tuple(alert for alert in status.alerts if alert.subject in names)
    return structs.replace(
        status, sandboxes=sandboxes, denied=denied, alerts=alerts, refusals={}, actions={}, audit_rows=0, unshipped=None
    )


def troubles_first(sandboxes: Sequence[Sandbox]) -> Sequence[Sandbox]:
    """Sort those with something wrong first, then by name."""
    return sorted(sandboxes, key=lambda one: (not has_trouble(one), one.name, one.ref))


def has_trouble(sandbox: Sandbox) -> bool:
    """Whether it failed, is lost or out of reach, ended with an error, or is in quarantine."""
    return failed(sandbox) or sandbox.status in (Status.FAILED, Status.LOST, Status.UNKNOWN) or bool(sandbox.quarantine)
