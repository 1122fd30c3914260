"""A sandbox as a row of the list; rows that say the same are the same object, so that only news is drawn."""

from __future__ import annotations

from sandbox_console.model.sandbox import Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.text import clean
from sandbox_console.tui.state import FleetState
from sandbox_console.tui.widgets.table import Row
from sandbox_console.tui.widgets.table_layout import Column
from sandbox_console.tui.words import DASH, DOING, STATUS, place, shown_name, size, span, why, why_style

COLUMNS = (
    Column("state", "STATE", 11, 12, priority=0),
    Column("name", "NAME", 14, 32, priority=0, flex=True),
    Column("backend", "BACKEND", 10, 20, priority=4),
    Column("image", "IMAGE", 12, 28, priority=5),
    Column("cpu", "CPU", 6, 6, align="right", priority=1),
    Column("memory", "MEM", 6, 12, align="right", priority=1),
    Column("egress", "EGRESS", 7, 8, priority=6),
    Column("secrets", "SECR", 4, 6, align="right", priority=7),
    Column("age", "AGE", 5, 6, align="right", priority=3),
    Column("exit", "WHY", 12, 44, priority=2, flex=True),
)
SORT_KEYS = {
    "N": "name", "S": "state", "B": "backend", "I": "image", "C": "cpu", "M": "memory", "W": "egress", "A": "age",
    "X": "exit",
}  # fmt: skip
"""Shift and a letter sorts by a column."""
_ORDER = {status: at for at, status in enumerate(
    (Status.FAILED, Status.LOST, Status.UNKNOWN, Status.RUNNING, Status.STARTING, Status.STOPPING, Status.PAUSED,
     Status.CREATED, Status.EXITED)
)}  # fmt: skip


class Rows:
    """Rows made from states. What a row is made of is compared first: 10,000 unchanged ones cost 10 ms."""

    def __init__(self) -> None:
        self._made: dict[SandboxRef, tuple[tuple[object, ...], Row]] = {}

    def of(self, state: FleetState, sandboxes: list[Sandbox], now: float) -> list[Row]:
        """A row for each of the sandboxes, in their order."""
        made = {sandbox.ref: self._row(state, sandbox, now) for sandbox in sandboxes}
        self._made = made
        return [row for _, row in made.values()]

    def _row(self, state: FleetState, sandbox: Sandbox, now: float) -> tuple[tuple[object, ...], Row]:
        ref = sandbox.ref
        age = span(now - sandbox.created_at) if sandbox.created_at is not None else DASH
        stats = state.stats.get(ref)
        parts = (sandbox, stats, age, state.busy.get(ref), ref in state.shells, state.stale(ref))
        before = self._made.get(ref)
        if before is not None and before[0] == parts:
            return before
        return parts, make_row(sandbox, stats, age, *parts[3:])


def make_row(sandbox: Sandbox, stats: Stats | None, age: str, busy: str | None, shell: bool, stale: bool) -> Row:
    """One row; ``stale`` marks what a backend that does not answer said last."""
    glyph, style = STATUS[sandbox.status]
    state = f"{glyph} {sandbox.status}"
    if busy:
        state, style = f"↻ {DOING.get(busy, busy)}", "accent"
    elif stale:
        state, style = f"? {sandbox.status}", "warn"
    spec = sandbox.spec
    name = shown_name(sandbox) + (" ❯_" if shell else "") + ("" if sandbox.managed else " ◇")
    cells = (
        state,
        name,
        place(sandbox),
        clean(sandbox.image, cap=200) or DASH,
        DASH if stats is None or stats.cpu_percent is None else f"{stats.cpu_percent:.0f}%",
        _memory(stats),
        DASH if spec is None else f"{len(spec.egress)} hosts" if len(spec.egress) > 1 else _egress(spec.egress),
        DASH if spec is None or not spec.secrets else str(len(spec.secrets)),
        age,
        why(sandbox),
    )
    styles: tuple[str, ...] = (
        style,
        "" if sandbox.managed else "dim",
        "dim",
        "dim",
        "",
        "",
        "dim",
        "dim",
        "dim",
        why_style(sandbox),
    )
    if stale:
        styles = (style, *("dim",) * (len(cells) - 1))
    return Row(sandbox.ref, cells, styles, _sort(sandbox, stats, cells))


def _egress(patterns: tuple[str, ...]) -> str:
    return "1 host" if patterns else "deny"


def _memory(stats: Stats | None) -> str:
    if stats is None or stats.memory_bytes is None:
        return DASH
    return size(stats.memory_bytes) + (f"/{size(stats.memory_limit)}" if stats.memory_limit else "")


def _sort(sandbox: Sandbox, stats: Stats | None, cells: tuple[str, ...]) -> tuple[object, ...]:
    spec = sandbox.spec
    return (
        _ORDER[sandbox.status],
        sandbox.name.casefold(),
        cells[2],
        cells[3].casefold(),
        stats.cpu_percent if stats else None,
        stats.memory_bytes if stats else None,
        len(spec.egress) if spec else None,
        len(spec.secrets) if spec else None,
        -sandbox.created_at if sandbox.created_at is not None else None,
        cells[9].casefold() or None,
    )
