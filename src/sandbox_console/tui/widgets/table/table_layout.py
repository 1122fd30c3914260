"""Calculates which columns of a table fit and their widths, and cuts cells to the width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

GAP = 2
"""Cells between two columns."""


YIELDING = 8
"""Columns of at least this priority are dropped before one of priority 0 is cut, as a name is more useful."""


GRAPH_LEAST = 3
"""The fewest cells in which a graph is useful."""


TEXT_LEAST = 6
"""The fewest cells to which a text is cut to make room for its end."""


class Cell(NamedTuple):
    """A value with a short form for narrow columns, a small graph for wide ones, and an ``end`` that is cut last."""

    text: str
    short: str = ""
    graph: str = ""
    end: str = ""

    def form(self, width: int) -> str:
        """Return the text with as much of the graph's end as fits, or the short form with it, or the longest form."""
        for text in filter(None, (self.text, self.short) if self.graph else ()):
            room = width - len(text) - 1
            if room >= GRAPH_LEAST:
                graph = self.graph[-room:]
                return f"{graph} {text.rjust(width - len(graph) - 1)}"
        return self.text if len(self.text) <= width or not self.short else self.short


class Column(Struct, frozen=True):
    """One column; widths are in cells.

    It is as wide as its content, between ``min_width`` and ``max_width``. If not all fit, those with the highest
    ``priority`` are dropped first; 0 is never dropped, or cut while one of `YIELDING` is shown. Remaining room goes to
    the ``flex`` columns. A ``graph`` in a cell takes no room that a flex column's text needs. ``largest`` is for
    figures whose largest values are of interest: the first sort shows these first.
    """

    key: str
    title: str
    min_width: int = 4
    max_width: int = 40
    align: Literal["left", "right"] = "left"
    priority: int = 1
    flex: bool = False
    largest: bool = False
    graph: bool = False


def natural_widths(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]]) -> list[int]:
    """Return the preferred column widths. Counts characters, not cells, which takes 6 ms for 10,000 rows, not 60."""
    longest = [max(map(_length, cells)) for cells in zip(*rows, strict=True)] if rows else [0] * len(columns)
    return [
        max(column.min_width, min(column.max_width, max(size, len(column.title) + GAP)))
        for column, size in zip(columns, longest, strict=True)
    ]


def bare_widths(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]]) -> dict[int, int]:
    """Return by index the width that each column with graphs needs for its figures alone, in their short form."""
    return {
        i: max(len(column.title) + GAP, max((_short(row[i]) for row in rows), default=0))
        for i, column in enumerate(columns)
        if column.graph
    }


def _short(cell: str | Cell) -> int:
    return len(cell) if isinstance(cell, str) else len(cell.short or cell.text)


def _length(cell: str | Cell) -> int:
    return len(cell) if isinstance(cell, str) else len(cell.text) + len(cell.end)


def fit_columns(
    columns: Sequence[Column], natural: Sequence[int], width: int, bare: Mapping[int, int] | None = None
) -> dict[int, int]:
    """Return the indexes of the columns that fit in ``width`` cells, in order, with their widths.

    ``bare`` is how narrow columns with graphs may become before a flex column is cut.
    """
    kept = list(range(len(columns)))
    least = [column.min_width for column in columns]
    whole = [size if column.priority == 0 else column.min_width for column, size in zip(columns, natural, strict=True)]
    while kept:
        worst = max(kept, key=lambda i: (columns[i].priority, i))
        wanted = whole if columns[worst].priority >= YIELDING else least
        if columns[worst].priority == 0 or _needed({i: wanted[i] for i in kept}) <= width:
            break
        kept.remove(worst)
    widths = {i: least[i] for i in kept}
    spare = width - _needed(widths)
    for i in sorted(kept, key=lambda i: columns[i].priority):
        more = max(0, min(spare, natural[i] - widths[i]))
        widths[i] += more
        spare -= more
    flexible = [i for i in kept if columns[i].flex]
    for graph, narrow in (bare or {}).items():
        for i in flexible if graph in widths else ():
            taken = max(0, min(natural[i] - widths[i], widths[graph] - narrow))
            widths[i] += taken
            widths[graph] -= taken
    return _give(widths, flexible, spare)


def fit_sideways(columns: Sequence[Column], natural: Sequence[int], width: int, skip: int) -> dict[int, int]:
    """Return widths without dropping columns: leading ones of priority 0 stay, then those from ``skip`` on that fit."""
    still = next((i for i, column in enumerate(columns) if column.priority), len(columns))
    widths: dict[int, int] = {}
    for i in (*range(still), *range(still + skip, len(columns))):
        room = width - _needed(widths) - (GAP if widths else 0)
        if room < columns[i].min_width and i >= still:
            break
        widths[i] = min(natural[i], max(room, columns[i].min_width))
    return _give(widths, [i for i in widths if columns[i].flex], width - _needed(widths))


def _needed(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + GAP * max(0, len(widths) - 1)


def _give(widths: dict[int, int], flexible: Sequence[int], spare: int) -> dict[int, int]:
    for turn, i in enumerate(flexible):
        share = max(0, spare) // (len(flexible) - turn)
        widths[i] += share
        spare -= share
    return widths


def fit_cell(text: str | Cell, width: int, align: str) -> str:
    """Return the text in exactly ``width`` cells, its end cut with ``…``."""
    if isinstance(text, Cell):
        if text.end:
            return _fit_ended(text, width, align)
        text = text.form(width)
    size = len(text) if text.isascii() else cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    pad = " " * (width - size)
    return pad + text if align == "right" else text + pad


def _fit_ended(cell: Cell, width: int, align: str) -> str:
    """Return a cell with an end. If both do not fit, the text is cut to at least `TEXT_LEAST`, then the end is."""
    whole = cell.text + cell.end
    room = max(TEXT_LEAST, width - cell_len(cell.end))
    if cell_len(whole) <= width or room > width - GAP or cell_len(cell.text) <= room:
        return fit_cell(whole, width, align)
    return fit_cell(cell.text, room, align) + fit_cell(cell.end, width - room, "left")
