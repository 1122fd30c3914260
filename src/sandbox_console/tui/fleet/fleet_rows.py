"""Sandboxes as rows of the list. Only visible rows are fully built: 10,000 of them would take 0.2 s."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from rich.cells import cell_len

from sandbox_console.model.drift import drifted
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.text import clean
from sandbox_console.tui.fleet.columns import BY_KEY, USUAL
from sandbox_console.tui.state.fleet_state import Denial, FleetState
from sandbox_console.tui.text.formatting import (
    DASH,
    DOING,
    STATUS,
    maker,
    name_and_id,
    sandbox_host,
    short_id,
    shown_name,
    size,
    span,
    status_reason,
    status_reason_style,
)
from sandbox_console.tui.text.port_text import openings
from sandbox_console.tui.widgets.braille import chart
from sandbox_console.tui.widgets.table.table import Paint
from sandbox_console.tui.widgets.table.table_layout import GAP, Cell

FOREIGN = " ◇"
"""Follows the name of a sandbox that another tool made."""
HELD = " ⊘"
"""Follows the name of a sandbox in quarantine."""
DRIFTED = " ≠"
"""Follows the name of a sandbox that differs from what was asked."""
FLOOD = 1 << 20
"""Bytes of log per second, above which WHY shows the rate."""
GRAPH = 5
"""Cells of a small graph, with two samples in each."""
_NEAR, _AT = 0.8, 0.95
_NEARLY = {"": "", "warn": "!", "error": "!!"}
"""Follows a load that is near or at its limit, for users who see no colours."""
_ORDER = {status: at for at, status in enumerate(
    (Status.FAILED, Status.LOST, Status.UNKNOWN, Status.RUNNING, Status.STARTING, Status.STOPPING, Status.PAUSED,
     Status.CREATED, Status.EXITED)
)}  # fmt: skip

Look = Callable[[Sandbox, FleetState, float], tuple[str | Cell, str]]


class Showing:
    """What all rows are built from: the state, the time, and the keys of the columns."""

    def __init__(self) -> None:
        self.state = FleetState()
        self.now = 0.0
        self.keys: Sequence[str] = USUAL


class SandboxRow(Struct, gc=False, eq=False):
    """A sandbox in the list. It is not tracked by the garbage collector: 10,000 took 10 ms of each collection."""

    sandbox: Sandbox
    showing: Showing
    head: ClassVar[bool] = False

    @property
    def key(self) -> Hashable:
        return self.sandbox.ref

    def paint(self) -> Paint:
        return paint(self.sandbox, self.showing.state, self.showing.keys, self.showing.now)

    @property
    def cells(self) -> Sequence[str | Cell]:
        """The cells to draw."""
        return self.paint()[0]

    def order(self, at: int, column: str) -> Any:  # noqa: ARG002 - others know their columns by place
        return ORDERS[column](self.sandbox, self.showing.state)


def paint(sandbox: Sandbox, state: FleetState, keys: Iterable[str], now: float) -> Paint:
    """Return a sandbox's cells and styles. They are dim if its backend does not answer, as they may be outdated."""
    found = [LOOKS[key](sandbox, state, now) for key in keys]
    if state.stale(sandbox.ref):
        return tuple(text for text, _ in found), tuple(
            style if at == 0 else "dim" for at, (_, style) in enumerate(found)
        )
    return tuple(text for text, _ in found), tuple(style for _, style in found)


def measure(sandbox: Sandbox, longest: dict[str, int]) -> None:
    """Update the lengths of the longest values, by column. Characters are counted; cells only in non-ASCII names."""
    ref, name = sandbox.ref, sandbox.name
    for key, length in (
        ("name", len(FOREIGN) + (len(name) if name.isascii() else cell_len(shown_name(sandbox)))),
        ("image", len(sandbox.image)), ("host", len(ref.host)),
        ("backend", len(ref.backend) + len(ref.host) + 1), ("maker", len(sandbox.maker)),
    ):  # fmt: skip
        if length > longest.get(key, 0):
            longest[key] = length


def natural(key: str, longest: int) -> int:
    """Return the preferred width of a column. Without a longest value it is the widest allowed."""
    column = BY_KEY[key]
    wanted = max(longest, len(column.title) + GAP) if longest else column.max_width
    return max(column.min_width, min(column.max_width, wanted))


def _state(sandbox: Sandbox, state: FleetState, _: float) -> tuple[str, str]:
    glyph, style = STATUS[sandbox.status]
    if busy := state.busy.get(sandbox.ref):
        return f"↻ {DOING.get(busy, busy)}", "accent"
    if state.stale(sandbox.ref):
        return f"? {sandbox.status}", "warn"
    return f"{glyph} {sandbox.status}", style


def _name(sandbox: Sandbox, state: FleetState, _: float) -> tuple[str | Cell, str]:
    name, id_ = name_and_id(sandbox)
    end = (
        (HELD if sandbox.quarantine else "")
        + (DRIFTED if sandbox.found and drifted(sandbox) else "")
        + (" ❯_" if sandbox.ref in state.shells else "")
        + ("" if sandbox.managed else FOREIGN)
        + id_
    )
    return Cell(name, end=end) if end else name, "" if sandbox.managed else "dim"


def _cpu(sandbox: Sandbox, state: FleetState, _: float) -> tuple[str | Cell, str]:
    stats = state.stats.get(sandbox.ref)
    if stats is None or stats.cpu_percent is None:
        return DASH, "dim"
    spec = sandbox.spec
    limit = spec.cpus * 100 if spec is not None and spec.cpus else None
    used = [sample.cpu_percent for sample in state.history.get(sandbox.ref, ())]
    style = _load(stats.cpu_percent, limit)
    return Cell(f"{stats.cpu_percent:.0f}%{_NEARLY[style]}", graph=_graph(used, limit or 100.0)), style


def _memory(sandbox: Sandbox, state: FleetState, _: float) -> tuple[str | Cell, str]:
    stats = state.stats.get(sandbox.ref)
    if stats is None or stats.memory_bytes is None:
        return DASH, "dim"
    style = _load(stats.memory_bytes, stats.memory_limit)
    short, sign = size(stats.memory_bytes), _NEARLY[style]
    text = f"{short}/{size(stats.memory_limit)}" if stats.memory_limit else short
    used = [one.memory_bytes for one in state.history.get(sandbox.ref, ())]
    graph = _graph(used, float(stats.memory_limit or max(one or 0 for one in used or (1,))))
    return Cell(text + sign, short + sign, graph), style


def _graph(values: Sequence[float | None], top: float) -> str:
    return chart(values, GRAPH, 1, top)[0] if len(values) > 1 else ""


def _load(value: float, limit: float | None) -> str:
    return "" if not limit or value < limit * _NEAR else "warn" if value < limit * _AT else "error"


def _net(sandbox: Sandbox, state: FleetState, _: float) -> tuple[str | Cell, str]:
    stats = state.stats.get(sandbox.ref)
    if stats is None or (stats.net_rx is None and stats.net_tx is None):
        return DASH, "dim"
    return Cell(f"↓{size(stats.net_rx)} ↑{size(stats.net_tx)}", f"↕{size(traffic(stats))}"), ""


def traffic(stats: Stats | None) -> float | None:
    """Return the bytes per second that a sandbox sends and receives, or None if that is not known."""
    return None if stats is None or stats.net_rx is None else stats.net_rx + (stats.net_tx or 0)


def _disk(sandbox: Sandbox, state: FleetState, _: float) -> tuple[str | Cell, str]:
    stats = state.stats.get(sandbox.ref)
    if stats is None or (both := disk_rate(stats)) is None:
        return DASH, "dim"
    return Cell(f"r{size(stats.block_read)} w{size(stats.block_write)}", size(both)), ""


def disk_rate(stats: Stats | None) -> float | None:
    """Return the bytes per second that a sandbox reads from and writes to disks, or None if that is not known."""
    if stats is None or (stats.block_read is None and stats.block_write is None):
        return None
    return (stats.block_read or 0) + (stats.block_write or 0)


def _log(sandbox: Sandbox, state: FleetState, _: float) -> tuple[str, str]:
    stats = state.stats.get(sandbox.ref)
    if stats is None or stats.log_rate is None:
        return DASH, "dim"
    return size(stats.log_rate), "warn" if stats.log_rate >= FLOOD else ""


def _egress(sandbox: Sandbox, state: FleetState, now: float) -> tuple[str | Cell, str]:
    spec = sandbox.spec
    count = len(spec.egress) if spec is not None else 0
    text = DASH if spec is None else "deny" if not count else "1 host" if count == 1 else f"{count} hosts"
    denial = state.denied.get(sandbox.ref)
    if denial is None:
        return text, "dim"
    return _denied(denial, text, now), "warn"


def _denied(denial: Denial, allowed: str, now: float) -> Cell:
    """Return the egress cell. The denials come first, so that no width cuts off their sign."""
    sign = denial.signs
    short = f"{sign} {allowed}"
    least = BY_KEY["egress"].min_width
    return Cell(
        f"{sign} {clean(denial.host, cap=60)} {span(now - denial.at)}, {allowed}",
        short if len(short) <= least else sign if len(sign) <= least else sign.partition(" ")[0],
    )


def _exit_cell(sandbox: Sandbox, state: FleetState, now: float) -> tuple[str | Cell, str]:
    """Return the WHY cell. If nothing is wrong, it shows a log flood or the last denial, for narrow screens."""
    if sandbox.quarantine:
        return clean(sandbox.quarantine, cap=200), "warn"
    words, denial, stats = status_reason(sandbox), state.denied.get(sandbox.ref), state.stats.get(sandbox.ref)
    if not words and sandbox.status.live and stats is not None and (stats.log_rate or 0) >= FLOOD:
        return f"log {size(stats.log_rate)}/s", "warn"
    if words or denial is None:
        oom = sandbox.exit is not None and sandbox.exit.oom
        return Cell(words, words.partition(",")[0]) if oom else words, status_reason_style(sandbox)
    words = "denied " if denial.count and not (denial.unresolved or denial.failed) else ""
    return f"{denial.signs} {words}{span(now - denial.at)} ago: {clean(denial.host, cap=60)}", "warn"


def _age(sandbox: Sandbox, _: FleetState, now: float) -> tuple[str, str]:
    return DASH if sandbox.created_at is None else span(now - sandbox.created_at), "dim"


def _restarts(sandbox: Sandbox, *_: object) -> tuple[str, str]:
    return DASH if sandbox.restarts is None else str(sandbox.restarts), "warn" if sandbox.restarts else "dim"


def _secrets(sandbox: Sandbox, *_: object) -> tuple[str, str]:
    return str(len(sandbox.spec.secrets)) if sandbox.spec and sandbox.spec.secrets else DASH, "dim"


def _labels(sandbox: Sandbox, *_: object) -> tuple[str, str]:
    shown = [f"{key}={value}" if value else key for key, value in list(sandbox.labels.items())[:8]]
    return clean(" ".join(shown), cap=200) or DASH, "dim"


def _ports(sandbox: Sandbox, *_: object) -> tuple[str, str]:
    """Return the ports. If the sandbox is not up, these are only the requested ones, and are dim."""
    shown = ", ".join(map(str, openings(sandbox)[:8]))
    return shown or DASH, "" if shown and sandbox.status.live else "dim"


def _host(sandbox: Sandbox, *_: object) -> tuple[str, str]:
    return clean(sandbox.ref.host, cap=60) or DASH, "dim"


def _maker(sandbox: Sandbox, *_: object) -> tuple[str, str]:
    return clean(maker(sandbox), cap=60) or DASH, "dim"


LOOKS: dict[str, Look] = {
    "state": _state,
    "name": _name,
    "backend": lambda sandbox, *_: (sandbox_host(sandbox), "dim"),
    "host": _host,
    "maker": _maker,
    "image": lambda sandbox, *_: (clean(sandbox.image, cap=200) or DASH, "dim"),
    "cpu": _cpu,
    "memory": _memory,
    "net": _net,
    "disk": _disk,
    "log": _log,
    "egress": _egress,
    "ports": _ports,
    "secrets": _secrets,
    "restarts": _restarts,
    "age": _age,
    "exit": _exit_cell,
    "labels": _labels,
    "id": lambda sandbox, *_: (short_id(sandbox), "dim"),
}


def _refused(sandbox: Sandbox, state: FleetState) -> tuple[int, int] | None:
    denial = state.denied.get(sandbox.ref)
    known = sandbox.spec is not None or denial is not None
    return (denial.count if denial else 0, len(sandbox.spec.egress) if sandbox.spec else 0) if known else None


def _of(ref: SandboxRef, state: FleetState, get: Callable[[Stats], float | None]) -> float | None:
    stats = state.stats.get(ref)
    return None if stats is None else get(stats)


ORDERS: dict[str, Callable[[Sandbox, FleetState], Any]] = {
    "state": lambda sandbox, _: _ORDER[sandbox.status],
    "name": lambda sandbox, _: sandbox.name.casefold(),
    "backend": lambda sandbox, _: (sandbox.ref.backend, sandbox.ref.host),
    "host": lambda sandbox, _: sandbox.ref.host,
    "maker": lambda sandbox, _: maker(sandbox).casefold(),
    "image": lambda sandbox, _: sandbox.image.casefold(),
    "cpu": lambda sandbox, state: _of(sandbox.ref, state, lambda one: one.cpu_percent),
    "memory": lambda sandbox, state: _of(sandbox.ref, state, lambda one: one.memory_bytes),
    "net": lambda sandbox, state: _of(sandbox.ref, state, traffic),
    "disk": lambda sandbox, state: disk_rate(state.stats.get(sandbox.ref)),
    "log": lambda sandbox, state: _of(sandbox.ref, state, lambda one: one.log_rate),
    "egress": _refused,
    "ports": lambda sandbox, _: [(one.at.host_port, one.at.port) for one in openings(sandbox)] or None,
    "secrets": lambda sandbox, _: len(sandbox.spec.secrets) if sandbox.spec else None,
    "restarts": lambda sandbox, _: sandbox.restarts,
    "age": lambda sandbox, _: -sandbox.created_at if sandbox.created_at is not None else None,
    "exit": lambda sandbox, _: status_reason(sandbox).casefold() or None,
    "labels": lambda sandbox, _: sorted(sandbox.labels.items()) or None,
    "id": lambda sandbox, _: sandbox.ref.id,
}
"""The sort value of each column. None is last."""
