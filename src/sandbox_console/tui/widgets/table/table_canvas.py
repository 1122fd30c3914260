"""The contents of a table: its rows, the columns that fit, and the text of an empty table."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import structs
from rich.style import Style
from textual.content import Content
from textual.geometry import Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.visual import Visual

from sandbox_console.tui.base.touch import LINES, by_touch
from sandbox_console.tui.widgets.line_scroll import LineScroll
from sandbox_console.tui.widgets.table.table_layout import GAP, Column, fit_columns, fit_sideways, natural_widths
from sandbox_console.tui.widgets.table.table_lines import LEFT, Inks, draw_head, draw_header, draw_row
from sandbox_console.tui.widgets.table.table_rows import Line, Paint

HEADER_ROWS = 1
Drawn = tuple[Hashable, Paint, bool, bool]
"""What a line shows: a row's key and cells, whether it is a head, and whether the cursor is on it."""


class TableCanvas(LineScroll):
    """Draws the visible rows. Only lines whose contents changed are redrawn."""

    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)
    """Does not repaint: :meth:`set_rows` redraws only the lines that change."""
    show_vertical_scrollbar: Reactive[bool] = Reactive(True, layout=True)
    """Always shown: if it came and went, the whole screen would be laid out, 12 ms for each key of a filter."""

    def __init__(self, columns: Sequence[Column], *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.columns = tuple(columns)
        self.sort_column: str | None = None
        self.sort_reverse = False
        self.skipped: int | None = None
        self.row_lines = 1
        self._rows: list[Line] = []
        self._given: Sequence[Line] = ()
        self._indexed: dict[Hashable, int] | None = None
        self._drawn: dict[int, Drawn | None] = {}
        self._cursor = 0
        self._natural = natural_widths(self.columns, [])
        self._bare: dict[int, int] = {}
        self._widths: dict[int, int] = {}
        self._laid_out_for = -1
        self._words = Content("")
        self._strips: tuple[Size, Sequence[Strip]] | None = None

    @property
    def rows(self) -> Sequence[Line]:
        """The rows in the order in which they are shown."""
        return self._rows

    @property
    def cursor_key(self) -> Hashable | None:
        """The key of the row under the cursor."""
        return self._rows[self._cursor].key if self._rows else None

    @property
    def shown_columns(self) -> list[str]:
        """The keys of the columns that fit."""
        return [self.columns[i].key for i in self._widths]

    def show_message(self, words: Content) -> None:
        """Set the text in the middle that is shown while there are no rows."""
        if not self._words.is_same(words):
            self._words, self._strips = words, None
            if not self._rows:
                self.refresh()

    def _measure(self) -> None:
        self.virtual_size = Size(self.scrollable_size.width, len(self._rows) * self.row_lines + HEADER_ROWS)

    def _refresh_changed(self) -> None:
        """Redraw only lines whose contents changed. While a filter is typed, often none do."""
        before = self._drawn
        lines = range(HEADER_ROWS, self.size.height)
        self._drawn = {y: self._to_draw(y) for y in lines}
        changed = [y for y in lines if y not in before or before[y] != self._drawn[y]]
        if changed:  # as one region: each region costs as much as eight rows
            self.refresh_lines(changed[0] + self.scroll_offset.y, changed[-1] - changed[0] + 1)

    def _goes(self, step: int) -> bool:
        return step < 0 or len(self.columns) - 1 not in self._widths

    @property
    def _page(self) -> int:
        """How many whole rows are shown."""
        return max(0, self.size.height - HEADER_ROWS) // self.row_lines

    @property
    def top(self) -> int:
        """The index of the first row that is shown."""
        return self.scroll_offset.y // self.row_lines

    def row_at(self, y: int) -> int | None:
        """The index of the row at a line of the widget; None at the header and below the rows."""
        at = (self.scroll_offset.y + y - HEADER_ROWS) // self.row_lines
        return at if y >= HEADER_ROWS and at < len(self._rows) else None

    def on_mount(self) -> None:
        self.row_lines = LINES if by_touch(self.app) else 1

    def on_resize(self) -> None:
        self._lay_out()
        self._measure()
        self.refresh()

    def _lay_out(self) -> bool:
        self._laid_out_for = self.scrollable_size.width
        room = max(0, self.scrollable_size.width - LEFT)
        if self.skipped is None:
            widths = fit_columns([self._important(column) for column in self.columns], self._natural, room, self._bare)
        else:
            widths = fit_sideways(self.columns, self._natural, room, self.skipped)
        changed = widths != self._widths
        self._widths = widths
        return changed

    def _important(self, column: Column) -> Column:
        """Return the column. The sorted one is the last to be left out, and has room for its arrow."""
        if column.key != self.sort_column:
            return column
        least = max(column.min_width, len(column.title) + GAP)
        return structs.replace(column, priority=min(column.priority, 1), min_width=least)

    def render_line(self, y: int) -> Strip:
        if self._laid_out_for != self.scrollable_size.width:  # before its first Resize, or with other columns
            self._lay_out()
        if y < HEADER_ROWS:
            return self._header()
        drawn = self._drawn[y] = self._to_draw(y)
        if drawn is None:
            return self._blank(y - HEADER_ROWS)
        _, paint, head, selected = drawn
        inks = Inks(self.rich_style, self._part, selected=selected)
        if (self.scroll_offset.y + y - HEADER_ROWS) % self.row_lines:
            return Strip.blank(self.scrollable_size.width, inks.base + inks.over)
        if head:
            return draw_head(paint, inks, self.scrollable_size.width)
        return draw_row(paint, self.columns, self._widths, inks, self.scrollable_size.width)

    def _blank(self, line: int) -> Strip:
        size = Size(self.scrollable_size.width, max(0, self.size.height - HEADER_ROWS))
        if self._rows or not self._words:
            return Strip.blank(size.width, self.rich_style)
        if self._strips is None or self._strips[0] != size:
            self._strips = (size, Visual.to_strips(self, self._words, *size, self.visual_style, pad=True))
        return self._strips[1][line]

    def notify_style_update(self) -> None:
        self._strips = None  # its colours
        super().notify_style_update()

    def _to_draw(self, y: int) -> Drawn | None:
        at = self.row_at(y)
        if at is None:
            return None
        row = self._rows[at]
        return row.key, row.paint(), row.head, at == self._cursor

    def _part(self, name: str) -> Style:
        return self.get_component_rich_style(f"table--{name}", partial=name in ("cursor", "head"))

    def _header(self) -> Strip:
        after = self.skipped is not None and self._goes(1)
        return draw_header(
            self.columns, self._widths, self._sort_mark, self._part("header"), self.scrollable_size.width,
            before=bool(self.skipped), after=after,
        )  # fmt: skip

    def _sort_mark(self, i: int) -> str:
        if self.columns[i].key != self.sort_column:
            return ""
        return " ▼" if self.sort_reverse else " ▲"
