"""A graph of one figure over time, with its limit and axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from sandbox_console.tui.text.formatting import DASH, span
from sandbox_console.tui.widgets.braille import chart, limit_row, scale

Samples = Sequence[float | None]
_LEAST_WITH_TIMES = 3
"""The fewest rows below the title with which one shows the times."""


class Series(Struct, frozen=True):
    """What a graph shows. ``floor`` is the least value at its top, and ``words`` formats a value."""

    title: str
    words: Callable[[float | None], str]
    floor: float
    unknown: str = "not reported by this backend"


class Graph(Widget):
    """A title with the current value, the highest and the limit, and below it the chart with labels on its axes."""

    DEFAULT_CSS = "Graph { height: 7; padding: 0 1; }"

    def __init__(self, series: Series, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.series = series
        self._values: Samples = ()
        self._limit: float | None = None
        self._interval_s = 1.0

    def show(self, values: Samples, limit: float | None, interval_s: float = 1.0) -> None:
        """Show samples, oldest first, at an interval of ``interval_s`` seconds."""
        self._values, self._limit, self._interval_s = values, limit, interval_s
        self.refresh()

    def render(self) -> Content:
        width, height = self.size.width, self.size.height - 1
        known = [value for value in self._values if value is not None]
        if not known:
            reason = self.series.unknown if self._values else "no sample yet"
            return Content.assemble((self.series.title, "bold"), (f"\n{reason}", "$dim"))
        has_times = height >= _LEAST_WITH_TIMES
        height = max(1, height - has_times)
        top = scale(self._values[-max(1, width) * 2 :], self._limit, self.series.floor)
        tops = [self.series.words(top), *[""] * (height - 1)]
        if height > 1:
            tops[-1] = "0"
        side = max(map(cell_len, tops))
        inside = max(1, width - side - 1)
        line = limit_row(self._limit, height, top) if self._limit is not None else None
        parts = self._heading(known, drawn=line is not None)
        for at, row in enumerate(chart(self._values, inside, height, top)):
            parts += [(f"\n{tops[at]:>{side}} ", "$dim"), *(_crossed(row) if at == line else [(row, "$primary")])]
        if has_times:
            parts.append((f"\n{' ' * side} {self._times(inside)}", "$dim"))
        return Content.assemble(*parts)

    def _times(self, width: int) -> str:
        """Return the row of times: the age of the chart's oldest sample, below that sample, and now."""
        shown = min(len(self._values), width * 2)
        at = width - (shown + 1) // 2
        ago = f"{span((shown - 1) * self._interval_s)} ago"
        if at + len(ago) + len(" now") > width:
            at = max(0, width - len(ago) - len(" now"))
        return f"{' ' * at}{ago}"[: max(0, width - 3)].ljust(width - 3) + "now"

    def _heading(self, known: Sequence[float], *, drawn: bool) -> list[tuple[str, str]]:
        words = self.series.words
        now = words(self._values[-1]) if self._values else DASH
        parts = [(f"{self.series.title} ", "bold"), (now, "$text-success"), (f"  peak {words(max(known))}", "$dim")]
        if self._limit is not None:
            sign = "┄ " if drawn else ""
            parts.append((f"  {sign}limit {words(self._limit)}", "$text-warning"))
        return parts


def _crossed(row: str) -> list[tuple[str, str]]:
    """Return a row of the chart, with the limit's line where there are no dots."""
    return [("┄" if char == "\u2800" else char, "$text-warning" if char == "\u2800" else "$text-error") for char in row]
