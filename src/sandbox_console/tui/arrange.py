"""From the state to the rows: what is hidden and by what, newest first, in groups. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.tui.filters import Filter
from sandbox_console.tui.groups import GroupKey, grouped
from sandbox_console.tui.rows import SandboxRow, Showing, measure, natural
from sandbox_console.tui.state import FleetState
from sandbox_console.tui.widgets.table import Line

_DENIAL = 40
"""Cells for the last denial, once there is one."""
_UNHEALTHY = ("unhealthy", "restarting")


@dataclass(frozen=True, slots=True)
class Hidden:
    """How many are not shown, by what hides them; each is counted once, where it fell out first."""

    others: int = 0
    healthy: int = 0
    filtered: int = 0

    @property
    def total(self) -> int:
        """All that are hidden."""
        return self.others + self.healthy + self.filtered


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to show: ``managed`` leaves out what others made, ``faults`` what is well."""

    shown: Filter = field(default_factory=lambda: Filter(""))
    faults: bool = False
    managed: bool = False
    group: str = ""
    folded: Container[GroupKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Arranged:
    """Rows to show, the sandboxes in them or folded away, the width each column would like, and what is hidden."""

    rows: Sequence[Line]
    sandboxes: Sequence[Sandbox]
    natural: Sequence[int]
    hidden: Hidden


def fault(sandbox: Sandbox, state: FleetState) -> bool:
    """Whether something is wrong with it: failed, lost, a bad end, unhealthy, restarting, or its backend is silent."""
    if sandbox.status in (Status.FAILED, Status.LOST) or state.stale(sandbox.ref):
        return True
    end = sandbox.exit
    if end is not None and not sandbox.status.live and (end.oom or end.code or end.signal):
        return True
    if sandbox.status is Status.STARTING and sandbox.restarts:
        return True
    return bool(sandbox.detail) and sandbox.detail.lower().startswith(_UNHEALTHY)


class Arranger:
    """Remembers the fleet in its order while no sandbox changed, and the row of each while it is the same object."""

    def __init__(self, showing: Showing) -> None:
        self.showing = showing
        self._of: Mapping[SandboxRef, Sandbox] | None = None
        self._newest: Sequence[Sandbox] = ()
        self._natural: dict[str, int] = {}
        self._made: dict[int, SandboxRow] = {}
        self._last: tuple[tuple[object, ...], Arranged] | None = None

    def arrange(self, state: FleetState, wanted: Wanted, now: float) -> Arranged:
        """What to show of a state."""
        showing = self.showing
        showing.state, showing.now = state, now
        if state.sandboxes is not self._of:
            self._take(state)
        still = (wanted, tuple(showing.keys), state.health, bool(state.denied))
        if self._last is not None and self._last[0] == still and not wanted.shown.moving:
            return self._last[1]
        arranged = self._arrange(state, wanted, now)
        self._last = (still, arranged)
        return arranged

    def _take(self, state: FleetState) -> None:
        self._of, self._newest, self._last = state.sandboxes, newest_first(state.sandboxes.values()), None
        if len(self._made) > 2 * len(self._newest) + 100:
            self._made.clear()
            self._natural.clear()

    def _arrange(self, state: FleetState, wanted: Wanted, now: float) -> Arranged:
        every: Sequence[Sandbox] = self._newest
        ours = [one for one in every if one.managed] if wanted.managed else every
        bad = [one for one in ours if fault(one, state)] if wanted.faults else ours
        shown = wanted.shown.select(bad, state, now)
        hidden = Hidden(len(every) - len(ours), len(ours) - len(bad), len(bad) - len(shown))
        rows: Sequence[Line]
        if wanted.group:
            rows = grouped(shown, wanted.group, self._row, wanted.folded)
        else:
            rows = [self._row(sandbox) for sandbox in shown]
        self._natural["egress"] = _DENIAL if state.denied else 1
        widths = [natural(key, self._natural.get(key, 0)) for key in self.showing.keys]
        return Arranged(rows, shown, widths, hidden)

    def _row(self, sandbox: Sandbox) -> SandboxRow:
        row = self._made.get(id(sandbox))  # which the row keeps alive
        if row is None:
            row = self._made[id(sandbox)] = SandboxRow(sandbox, self.showing)
            measure(sandbox, self._natural)
        return row


def newest_first(sandboxes: Iterable[Sandbox]) -> Sequence[Sandbox]:
    """The order where no other is asked for; equal ones by name. 10,000 take 3 ms, 10 with one key for both."""
    known: list[Sandbox] = []
    unknown: list[Sandbox] = []
    for one in sandboxes:
        (unknown if one.created_at is None else known).append(one)
    known.sort(key=attrgetter("created_at"), reverse=True)
    found: list[Sandbox] = []
    for _, same in itertools.groupby(known, attrgetter("created_at")):
        group = list(same)
        found += group if len(group) == 1 else sorted(group, key=attrgetter("name"))
    return found + sorted(unknown, key=attrgetter("name"))
