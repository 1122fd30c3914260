"""From one state to the next: pure, and without Textual."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import assert_never

from sandbox_console.model.event import (
    Acted,
    AuditChanged,
    Changed,
    Gap,
    HealthChanged,
    Listed,
    Removed,
    Sampled,
)
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef, Stats, Status
from sandbox_console.tui.state import ACTED_KEPT, Began, Ended, FleetState, News, ShellClosed, ShellOpened


def reduce(state: FleetState, events: Iterable[News]) -> FleetState:
    """The state after these events. Maps are copied once a batch: 1 ms for 10,000 sandboxes."""
    draft = _Draft(state)
    for event in events:
        draft.take(event)
    return draft.done()


class _Draft:
    """The parts of a state while a batch is applied."""

    def __init__(self, state: FleetState) -> None:
        self.before = state
        self.sandboxes: dict[SandboxRef, Sandbox] = dict(state.sandboxes)
        self.stats: dict[SandboxRef, Stats] = dict(state.stats)
        self.health: dict[tuple[str, str], BackendHealth] = dict(state.health)
        self.busy: dict[SandboxRef, str] = dict(state.busy)
        self.shells = set(state.shells)
        self.acted = list(state.acted)
        self.audit_problem = state.audit_problem
        self.missed = state.missed

    def take(self, event: News) -> None:  # noqa: C901, PLR0912 - one case an event
        match event:
            case Listed(backend, host, sandboxes):
                self._list(backend, host, sandboxes)
            case Changed(sandbox):
                self._put(sandbox)
            case Removed(ref):
                self._drop(ref)
            case HealthChanged(health):
                self.health[health.backend, health.host] = health
            case Sampled(ref, stats):
                self._sample(ref, stats)
            case Acted():
                self.acted.append(event)
            case AuditChanged(reason):
                self.audit_problem = reason
            case Gap(count):
                self.missed += count
            case Began(ref, verb):
                self.busy[ref] = verb
            case Ended(ref):
                self.busy.pop(ref, None)
            case ShellOpened(ref):
                self.shells.add(ref)
            case ShellClosed(ref):
                self.shells.discard(ref)
            case _:
                assert_never(event)

    def _list(self, backend: str, host: str, sandboxes: Iterable[Sandbox]) -> None:
        found = {sandbox.ref for sandbox in sandboxes}
        for ref in [ref for ref in self.sandboxes if (ref.backend, ref.host) == (backend, host) and ref not in found]:
            self._drop(ref)
        for sandbox in sandboxes:
            self._put(sandbox)

    def _put(self, sandbox: Sandbox) -> None:
        self.sandboxes[sandbox.ref] = sandbox
        if sandbox.status is not Status.RUNNING:
            self.stats.pop(sandbox.ref, None)

    def _drop(self, ref: SandboxRef) -> None:
        self.sandboxes.pop(ref, None)
        self.stats.pop(ref, None)

    def _sample(self, ref: SandboxRef, stats: Stats) -> None:
        sandbox = self.sandboxes.get(ref)
        if sandbox is not None and sandbox.status is Status.RUNNING:  # a late sample of one that ended tells nothing
            self.stats[ref] = stats

    def done(self) -> FleetState:
        return dataclasses.replace(
            self.before,
            sandboxes=self.sandboxes,
            stats=self.stats,
            health=self.health,
            busy=self.busy,
            shells=frozenset(self.shells),
            acted=tuple(self.acted[-ACTED_KEPT:]),
            audit_problem=self.audit_problem,
            missed=self.missed,
        )
