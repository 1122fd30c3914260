"""A sandbox's resource usage over time, with its limits."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine

from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Stats, Status
from sandbox_console.service import Console
from sandbox_console.tui.detail.follows_sandbox import FollowsSandbox
from sandbox_console.tui.state.fleet_state import TabState
from sandbox_console.tui.text.formatting import DASH, size
from sandbox_console.tui.widgets.graph import Graph, Samples, Series

INTERVAL_S = 1.0
KEPT = 900
"""Samples kept for one sandbox: a quarter of an hour."""
SANDBOXES = 32
_WIDE = 100


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.0f}%"


def _count(value: float | None) -> str:
    return DASH if value is None else f"{value:.0f}"


def _rate(value: float | None) -> str:
    return DASH if value is None else f"{size(value)}/s"


CPU = Series("CPU", _percent, 10)
MEMORY = Series("Memory", size, 1 << 20)
_SERIES: tuple[tuple[str, Series, Callable[[Stats], float | None]], ...] = (
    ("cpu", CPU, lambda one: one.cpu_percent),
    ("memory", MEMORY, lambda one: one.memory_bytes),
    ("pids", Series("Processes", _count, 4), lambda one: one.pids),
    ("rx", Series("Network in", _rate, 1024), lambda one: one.net_rx),
    ("tx", Series("Network out", _rate, 1024), lambda one: one.net_tx),
    ("read", Series("Block read", _rate, 1024), lambda one: one.block_read),
    ("write", Series("Block write", _rate, 1024), lambda one: one.block_write),
)


class StatsPane(VerticalScroll, FollowsSandbox, can_focus=True):
    """Graphs of the selected sandbox, which is sampled each second while the tab is open."""

    DEFAULT_CSS = """
    StatsPane { height: 1fr; scrollbar-size-vertical: 1; }
    StatsPane > #stats-note { height: auto; padding: 0 1; color: $text-muted; display: none; }
    StatsPane > #stats-note.-on { display: block; }
    StatsPane > Grid { height: auto; grid-size: 1; grid-rows: 6; grid-gutter: 0 2; }
    StatsPane.-two > Grid { grid-size: 2; grid-rows: 7; }
    StatsPane Graph { height: 100%; }
    """

    NOTE = "#stats-note"

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._sandbox: Sandbox | None = None
        self._history: OrderedDict[SandboxRef, deque[Stats]] = OrderedDict()

    def compose(self) -> ComposeResult:
        yield Static(id="stats-note")
        with Grid():
            for name, series, _ in _SERIES:
                yield Graph(series, id=f"graph-{name}")

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "-two")

    def show(self, look: TabState) -> None:
        """Sample a sandbox while the tab is open. Its limits may change in the meantime."""
        self._sandbox = look.sandbox
        super().show(look)

    def begin(self, sandbox: Sandbox) -> Coroutine[None, None, None] | None:
        """Sample a sandbox while it runs."""
        self._draw(sandbox)
        known, running = bool(self._history.get(sandbox.ref)), sandbox.status is Status.RUNNING
        self.query_one(Grid).display = running or known
        kept = " These are its last figures." if known else " Start it to see its use."
        self._note("" if running else f"It is {sandbox.status}: there is nothing to measure.{kept}")
        return self._sample(sandbox) if running else None

    async def _sample(self, sandbox: Sandbox) -> None:
        samples = self._history.setdefault(sandbox.ref, deque(maxlen=KEPT))
        self._history.move_to_end(sandbox.ref)
        while len(self._history) > SANDBOXES:
            self._history.popitem(last=False)
        try:
            async for stats in self._service.stats(sandbox.ref, INTERVAL_S):
                samples.append(stats)
                self._draw(sandbox)
        except ConsoleError as error:
            self._note(f"✕ {error.message}")

    def _draw(self, sandbox: Sandbox) -> None:
        samples = self._history.get(sandbox.ref, ())
        limits = limits_of(self._sandbox or sandbox, samples[-1] if samples else None)
        for name, _, value in _SERIES:
            values: Samples = [value(stats) for stats in samples]
            for graph in self.query(f"#graph-{name}").results(Graph):
                graph.show(values, limits.get(name), INTERVAL_S)


_LIMITS = {"cpus": ("cpu", 100.0), "memory_mib": ("memory", float(1 << 20)), "pids": ("pids", 1.0)}
"""For a field of the spec, its graph and the size of one unit on it."""


def limits_of(sandbox: Sandbox, latest: Stats | None) -> dict[str, float]:
    """Return the limits in effect by graph, whoever set them. A requested limit that is not enforced draws no line."""
    found: dict[str, float] = {}
    if latest is not None and latest.memory_limit:
        found["memory"] = float(latest.memory_limit)
    facts = {fact.field: fact for fact in sandbox.effective}
    for field, (graph, unit) in _LIMITS.items():
        requested = getattr(sandbox.spec, field) if sandbox.spec is not None else None
        fact = facts.get(field)
        holds = requested if fact is None else _number(fact.value) or requested if fact.enforced else None
        if holds:
            found.setdefault(graph, holds * unit)
    return found


def _number(text: str) -> float | None:
    """Return a fact's value if it is a number, or None."""
    return float(text) if text.replace(".", "", 1).isdecimal() else None
