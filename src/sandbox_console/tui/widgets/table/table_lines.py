"""Draws the lines of a table: the header, the rows, and the headings of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from sandbox_console.tui.widgets.table.table_layout import GAP, Column, fit_cell
from sandbox_console.tui.widgets.table.table_rows import Paint

CURSOR_MARK = "▸"
LEFT = len(CURSOR_MARK) + 1
"""Cells before the first column."""


class Inks:
    """The current styles of a table: its own, and those of its parts by name."""

    def __init__(self, base: Style, part: Callable[[str], Style], *, selected: bool = False) -> None:
        self.base = base
        self.part = part
        self.over = part("cursor") if selected else Style.null()
        self.sign = f"{CURSOR_MARK} " if selected else " " * LEFT

    def of(self, name: str) -> Style:
        """Return the style for a cell's style name."""
        return self.part(name) if name else self.base


def draw_header(
    columns: Sequence[Column], widths: Mapping[int, int], mark: Callable[[int], str], style: Style, width: int,
    *, before: bool = False, after: bool = False,
) -> Strip:  # fmt: skip
    """Draw the titles with their sort marks. ``before`` and ``after`` mean more columns to the left and right."""
    text = "‹ " if before else " " * LEFT
    text += (" " * GAP).join(fit_cell(columns[i].title + mark(i), room, columns[i].align) for i, room in widths.items())
    if not after:
        return Strip([Segment(text, style)]).adjust_cell_length(width, style)
    line = Strip([Segment(text, style)]).adjust_cell_length(width - 1, style)
    return Strip.join([line, Strip([Segment("›", style)])])


def draw_row(paint: Paint, columns: Sequence[Column], widths: Mapping[int, int], inks: Inks, width: int) -> Strip:
    """Draw the cells in their columns."""
    cells, styles = paint
    background = inks.base + inks.over
    gap = Segment(" " * GAP, background)
    segments = [Segment(inks.sign, background)]
    for i, room in widths.items():
        style = inks.of(styles[i] if styles else "")
        segments += (Segment(fit_cell(cells[i], room, columns[i].align), style + inks.over), gap)
    return Strip(segments).adjust_cell_length(width, background)


def draw_head(paint: Paint, inks: Inks, width: int) -> Strip:
    """Draw the cells one after the other."""
    base = inks.base + inks.part("head")
    segments = [Segment(inks.sign, base + inks.over)]
    for cell, name in zip(*paint, strict=True):
        segments.append(Segment(str(cell), base + (inks.part(name) if name else base) + inks.over))
    return Strip(segments).adjust_cell_length(width, base + inks.over)


def column_at(x: int, widths: Mapping[int, int]) -> int | None:
    """Return the index of the column whose title is at a cell of the header. It includes the gap after it."""
    left = LEFT
    for i, width in widths.items():
        if left <= x < left + width + GAP:
            return i
        left += width + GAP
    return None
