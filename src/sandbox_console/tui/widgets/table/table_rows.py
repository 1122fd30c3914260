"""A table's rows: the interface of a row, a fully built row, and their order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from sandbox_console.tui.widgets.table.table_layout import Cell

Paint = tuple[Sequence[str | Cell], Sequence[str]]
"""The cells of a row, already clean, and a style for each: "", "ok", "warn", "error", "dim" or "accent"."""


class Line(Protocol):
    """A row of a table. ``head`` rows separate the others, and their cells are drawn one after the other."""

    @property
    def key(self) -> Hashable: ...
    @property
    def head(self) -> bool: ...
    def paint(self) -> Paint:
        """Return what to draw. Called only for visible rows."""
        ...

    def order(self, at: int, column: str) -> Any:
        """Return the sort value. None is last."""
        ...


class Row(NamedTuple):
    """A fully built row. ``sort`` is for columns that cannot be sorted by text (numbers, times)."""

    key: Hashable
    cells: tuple[str | Cell, ...]
    styles: tuple[str, ...] = ()
    sort: tuple[Any, ...] = ()
    head: bool = False

    def paint(self) -> Paint:
        return self.cells, self.styles

    def order(self, at: int, column: str) -> Any:  # noqa: ARG002 - others know their columns by name
        if self.sort:
            return self.sort[at]
        cell = self.cells[at]
        return (cell if isinstance(cell, str) else cell.text).casefold()


def ordered(rows: Sequence[Line], at: int, column: str, *, reverse: bool) -> list[Line]:
    """Return rows sorted by a column, each under its head. Those without a value are last in either direction."""
    found: list[Line] = []
    group: list[Line] = []
    for row in rows:
        if row.head:
            found += _sorted(group, at, column, reverse)
            found.append(row)
            group = []
        else:
            group.append(row)
    return found + _sorted(group, at, column, reverse)


def _sorted(rows: Sequence[Line], at: int, column: str, reverse: bool) -> list[Line]:
    values = [row.order(at, column) for row in rows]
    known = [i for i, value in enumerate(values) if value is not None]
    known.sort(key=values.__getitem__, reverse=reverse)
    return [rows[i] for i in known] + [row for row, value in zip(rows, values, strict=True) if value is None]
