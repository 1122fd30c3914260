"""The immutable state that the screens show. Only :func:`~sandbox_console.tui.state.reducer.reduce` creates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from sandbox_console.model.alert import Alert
from sandbox_console.model.event import Acted, ConfigChanged, Event
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef, Stats

ACTED_KEPT = 200
"""Ended actions that the state remembers. The audit log has all of them."""
SAMPLES_KEPT = 12
"""Samples of each sandbox that the list's small graphs show."""

_SILENT = (HealthState.UNREACHABLE, HealthState.UNAVAILABLE)


class InFlight(Struct, frozen=True):
    """An action on a sandbox is in flight."""

    ref: SandboxRef
    verb: str


class Ended(Struct, frozen=True):
    """The action has ended."""

    ref: SandboxRef


class ShellOpened(Struct, frozen=True):
    """A shell in a sandbox was opened."""

    ref: SandboxRef


class ShellClosed(Struct, frozen=True):
    """The shell has ended."""

    ref: SandboxRef


class Forwarded(Struct, frozen=True):
    """The ports of a sandbox that this app forwards, as ``8080→80``. Empty means that none are left."""

    ref: SandboxRef
    ports: tuple[str, ...]


class AlertsSeen(Struct, frozen=True):
    """The alerts that fire, and what keeps their rules from running."""

    firing: tuple[Alert, ...] = ()
    problem: str = ""


News = Event | AlertsSeen | InFlight | Ended | ShellOpened | ShellClosed | Forwarded


class Denial(Struct, frozen=True):
    """How often a sandbox was denied a host, could not resolve one or failed to connect, and the last occurrence."""

    count: int
    host: str
    at: float
    unresolved: int = 0
    failed: int = 0

    @property
    def signs(self) -> str:
        """The counts that are not zero, as ``⊘2 ?1 ✕3``: denied, not resolved, failed."""
        counts = (("⊘", self.count), ("?", self.unresolved), ("✕", self.failed))
        return " ".join(f"{sign}{count}" for sign, count in counts if count)


class FleetState(Struct, frozen=True):
    """The last known state of every sandbox, sample and backend.

    ``history`` holds the last samples of each sandbox, the newest last. ``denied`` holds which were denied a host, as
    far back as records are kept. ``busy`` holds the verb of the action in flight on a sandbox, ``audit_problem`` why
    nothing can be changed now, ``config`` the last change of the configuration, ``alerts`` those that fire, and
    ``missed`` how many events this viewer lost because it was too slow.
    """

    sandboxes: Mapping[SandboxRef, Sandbox] = field(default_factory=dict)
    stats: Mapping[SandboxRef, Stats] = field(default_factory=dict)
    history: Mapping[SandboxRef, tuple[Stats, ...]] = field(default_factory=dict)
    denied: Mapping[SandboxRef, Denial] = field(default_factory=dict)
    health: Mapping[tuple[str, str], BackendHealth] = field(default_factory=dict)
    busy: Mapping[SandboxRef, str] = field(default_factory=dict)
    shells: frozenset[SandboxRef] = frozenset()
    forwards: Mapping[SandboxRef, tuple[str, ...]] = field(default_factory=dict)
    acted: tuple[Acted, ...] = ()
    audit_problem: str = ""
    config: ConfigChanged = ConfigChanged()
    alerts: AlertsSeen = AlertsSeen()
    missed: int = 0

    def stale(self, ref: SandboxRef) -> bool:
        """Return whether a sandbox's backend does not answer, so that what is shown may be outdated."""
        health = self.health.get((ref.backend, ref.host))
        return health is not None and health.state in _SILENT

    @property
    def heard_of(self) -> tuple[Sequence[Sandbox], int]:
        """The sandboxes whose backend answers, and the number of others."""
        every = list(self.sandboxes.values())
        if not self.dead:  # checking each of 10,000 takes 5 ms
            return every, 0
        silent = {key for key, health in self.health.items() if health.state in _SILENT}
        hosts = {host for _, host in silent}  # looked up first: most are on none of these, which takes a third
        heard = [
            sandbox
            for sandbox in every
            if (ref := sandbox.ref).host not in hosts or (ref.backend, ref.host) not in silent
        ]
        return heard, len(every) - len(heard)

    @property
    def connecting(self) -> bool:
        """Whether a backend has not answered yet."""
        return not self.health or any(health.state is HealthState.CONNECTING for health in self.health.values())

    @property
    def dead(self) -> list[BackendHealth]:
        """The backends that should answer but do not."""
        return [health for health in self.health.values() if health.state is HealthState.UNREACHABLE]


class TabState(NamedTuple):
    """A sandbox, whether the pane is shown, and a version that changes when there were actions."""

    sandbox: Sandbox | None
    active: bool
    version: object = None
