"""One figure over time, with its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from textual.content import Content
from textual.widget import Widget

from sandbox_console.tui.text.formatting import DASH
from sandbox_console.tui.widgets.braille import chart, limit_row, scale

Samples = Sequence[float | None]


class Series(Struct, frozen=True):
    """What a graph shows: ``floor`` is the least that its top stands for, ``words`` writes a value."""

    title: str
    words: Callable[[float | None], str]
    floor: float
    unknown: str = "not told by this backend"


class Graph(Widget):
    """A title with the value now, the highest and the limit; under it the chart."""

    DEFAULT_CSS = "Graph { height: 7; padding: 0 1; }"

    def __init__(self, series: Series, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.series = series
        self._values: Samples = ()
        self._limit: float | None = None

    def show(self, values: Samples, limit: float | None) -> None:
        """Show samples, oldest first."""
        self._values, self._limit = values, limit
        self.refresh()

    def render(self) -> Content:
        width, height = self.size.width, self.size.height - 1
        known = [value for value in self._values if value is not None]
        if not known:
            why = self.series.unknown if self._values else "no sample yet"
            return Content.assemble((self.series.title, "bold"), (f"\n{why}", "$dim"))
        top = scale(self._values[-width * 2 :], self._limit, self.series.floor)
        rows = chart(self._values, width, max(1, height), top)
        line = limit_row(self._limit, max(1, height), top) if self._limit is not None else None
        parts = self._heading(known, line)
        for at, row in enumerate(rows):
            parts += [("\n", ""), *(_crossed(row) if at == line else [(row, "$primary")])]
        return Content.assemble(*parts)

    def _heading(self, known: Sequence[float], line: int | None) -> list[tuple[str, str]]:
        words = self.series.words
        now = words(self._values[-1]) if self._values else DASH
        parts = [(f"{self.series.title} ", "bold"), (now, "$text-success"), (f"  most {words(max(known))}", "$dim")]
        if self._limit is not None:
            place = "┄ limit" if line is not None else "limit, far above"
            parts.append((f"  {place} {words(self._limit)}", "$text-warning"))
        return parts


def _crossed(row: str) -> list[tuple[str, str]]:
    """A row of the chart with the limit's line where no dot is."""
    return [("┄" if char == "\u2800" else char, "$text-warning" if char == "\u2800" else "$text-error") for char in row]
