"""Which sandboxes write, send and use the most, by the last samples. Pure."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content

from sandbox_console.model.sandbox import Stats
from sandbox_console.tui.fleet.fleet_rows import disk_rate, traffic
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import DASH, shown_name, size

NAMED = 3


def _percent(value: float) -> str:
    return f"{value:.0f}%"


_USES: tuple[tuple[str, Callable[[Stats], float | None], Callable[[float], str]], ...] = (
    ("Log/s", lambda one: one.log_rate, size),
    ("Network/s", traffic, size),
    ("Disk/s", disk_rate, size),
    ("CPU", lambda one: one.cpu_percent, _percent),
    ("Memory", lambda one: one.memory_bytes, size),
)


def loudest_words(state: FleetState) -> Content:
    """Return for each kind of use the sandboxes with the most of it, the first one with its value in a column."""
    parts: list[tuple[str, str]] = []
    for title, value, form in _USES:
        found = [(used, ref) for ref, stats in state.stats.items() if (used := value(stats)) and ref in state.sandboxes]
        found.sort(reverse=True)
        parts += [("\n" if parts else "", ""), (f"{title:<15}", "")]
        if not found:
            parts.append((f"{DASH:>7}", "$dim"))
        for at, (used, ref) in enumerate(found[:NAMED]):
            name = shown_name(state.sandboxes[ref])
            parts += (
                [(f"{form(used):>7}", "bold"), (f"  {name}", "")] if at == 0 else [(f"  {form(used)} {name}", "$dim")]
            )
    return Content.assemble(*parts)
