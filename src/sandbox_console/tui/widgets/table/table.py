"""The list of sandboxes: a table that draws only the visible rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from sandbox_console.tui.base.touch import by_touch
from sandbox_console.tui.keys.main_keys import TABLE_KEYS
from sandbox_console.tui.widgets.table.table_canvas import HEADER_ROWS, TableCanvas
from sandbox_console.tui.widgets.table.table_layout import Column, bare_widths, natural_widths
from sandbox_console.tui.widgets.table.table_lines import column_at
from sandbox_console.tui.widgets.table.table_rows import Line, Paint, Row, ordered

__all__ = ["HEADER_ROWS", "FleetTable", "Line", "Paint", "Row"]


class FleetTable(TableCanvas, can_focus=True):
    """A table of rows with keys, a cursor that stays on its key, and a sort order.

    ::

        table = FleetTable([Column("state", "STATE", 9, priority=0), Column("name", "NAME", 12, flex=True, priority=0)])
        table.set_rows([Row("id-1", ("● running", "web"), ("ok", ""))])
        table.sort_by("name")     # calling it again reverses the order

    Posts `Chosen(key)` on Enter and double click, `Moved(key)` when the cursor moves to another row,
    `Turned(key, opened)` when Left or Right is pressed on a head, and `Sorted` when the order changes. Sorting keeps
    rows under their head.

    Give states a glyph and a word: some people and terminals cannot see colours.
    """

    DEFAULT_CSS = """
    FleetTable {
        height: 1fr; overflow: hidden scroll; scrollbar-size-vertical: 1; scrollbar-background: $background;
        content-align: center middle; text-align: center;
    }
    FleetTable > .table--header { text-style: bold; color: $text-muted; }
    FleetTable > .table--cursor { background: $panel; text-style: bold; }
    FleetTable:focus > .table--cursor { background: $block-cursor-background; color: $foreground; }
    FleetTable > .table--ok { color: $text-success; }
    FleetTable > .table--warn { color: $text-warning; }
    FleetTable > .table--error { color: $text-error; }
    FleetTable > .table--dim { color: $text-muted; }
    FleetTable > .table--accent { color: $text-accent; }
    FleetTable > .table--head { text-style: bold; background: $surface; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"table--{name}" for name in ("header", "cursor", "ok", "warn", "error", "dim", "accent", "head")
    }
    BINDINGS: ClassVar[list[BindingType]] = TABLE_KEYS

    class Chosen(Message):
        """A row was opened."""

        def __init__(self, table: FleetTable, key: Hashable) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> FleetTable:
            return self.table

    class Moved(Message):
        """The cursor is on another row; ``key`` is None when the table is empty."""

        def __init__(self, table: FleetTable, key: Hashable | None) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> FleetTable:
            return self.table

    class Turned(Message):
        """The user opens or closes a group. From a row inside it, ``open`` is False."""

        def __init__(self, table: FleetTable, key: Hashable, *, opened: bool) -> None:
            super().__init__()
            self.table = table
            self.key = key
            self.opened = opened

        @property
        def control(self) -> FleetTable:
            return self.table

    class Sorted(Message):
        """The order has changed."""

        def __init__(self, table: FleetTable) -> None:
            super().__init__()
            self.table = table

        @property
        def control(self) -> FleetTable:
            return self.table

    def set_columns(self, columns: Sequence[Column], *, sideways: bool = False) -> None:
        """Set the columns for rows that are set next. ``sideways`` drops none of them, and keys scroll sideways."""
        self.columns = tuple(columns)
        self.skipped = min(self.skipped or 0, len(self.columns) - 1) if sideways else None
        if self.sort_column not in {column.key for column in self.columns}:
            self.sort_column = None
        self._natural, self._bare = natural_widths(self.columns, []), {}
        self._drawn, self._widths, self._laid_out_for = {}, {}, -1

    def set_rows(self, rows: Sequence[Line], natural: Sequence[int] | None = None) -> None:
        """Set the rows. The cursor stays on its key, or in its place if the key is gone. Keys must be unique.

        ``natural`` is the preferred width of each column. Without it all cells are measured.
        """
        before, key = len(self._rows), self.cursor_key
        self._given = rows
        self._rows = self._sorted(rows)
        self._indexed = None
        if natural is None:
            cells = [row.paint()[0] for row in rows]
            self._natural, self._bare = natural_widths(self.columns, cells), bare_widths(self.columns, cells)
        else:
            self._natural = [*natural]
        self._place_cursor(key)
        anew = self._lay_out()
        if anew or before != len(self._rows):
            self._measure()
        if anew or not before or not self._rows:
            self._drawn = {}
            self.refresh()
        else:
            self._refresh_changed()
        if self.cursor_key != key:
            self.post_message(self.Moved(self, self.cursor_key))

    @property
    def _index(self) -> dict[Hashable, int]:
        """The index of keys, built on demand: hashing 10,000 takes 4 ms, and a cursor that stays needs no index."""
        if self._indexed is None:
            self._indexed = {row.key: at for at, row in enumerate(self._rows)}
        return self._indexed

    def _place_cursor(self, key: Hashable | None) -> None:
        if self._cursor < len(self._rows) and self._rows[self._cursor].key == key:
            return
        top = self.top
        offset = self._cursor - top
        # Looking for one key takes a fifth of the time of the index of 10,000, which would be built for each change.
        found = (at for at, row in enumerate(self._rows) if row.key == key)
        self._cursor = next(found, min(self._cursor, max(0, len(self._rows) - 1)))
        if self._cursor - top != offset and 0 <= offset < self._page:
            self._show_cursor()

    def sort_by(self, key: str, *, reverse: bool | None = None) -> None:
        """Sort by a column, or reverse the order if it is the current one. Raises KeyError for an unknown column."""
        column = next((column for column in self.columns if column.key == key), None)
        if column is None:
            raise KeyError(key)
        turned = not self.sort_reverse if key == self.sort_column else column.largest
        # When reversed, equal rows keep their order. By another column, they have the original order, not the last one.
        rows, given = (self._rows if key == self.sort_column else self._given), self._given
        self.sort_reverse = turned if reverse is None else reverse
        self.sort_column = key
        self.set_rows(rows, self._natural)
        self._given = given
        self.refresh()
        self.post_message(self.Sorted(self))

    def unsort(self) -> None:
        """Keep the order of the rows that are set next."""
        self.sort_column, self.sort_reverse = None, False
        self.refresh()

    def _sorted(self, rows: Sequence[Line]) -> list[Line]:
        at = next((i for i, column in enumerate(self.columns) if column.key == self.sort_column), None)
        return list(rows) if at is None else ordered(rows, at, self.columns[at].key, reverse=self.sort_reverse)

    def move_to(self, key: Hashable) -> bool:
        """Move the cursor to a key. Returns False if there is no such key."""
        if key not in self._index:
            return False
        self._go(self._index[key])
        return True

    def action_move(self, step: int) -> None:
        """Move the cursor by rows."""
        self._go(self._cursor + step)

    def key_shift_pageup(self) -> None:
        """Scroll as terminals do."""
        self.action_page(-1)

    def key_shift_pagedown(self) -> None:
        """Scroll as terminals do."""
        self.action_page(1)

    def action_page(self, step: int) -> None:
        """Move the cursor by pages."""
        self._go(self._cursor + step * max(1, self._page - 1))

    def action_go(self, to: int) -> None:
        """Move the cursor to the first row (0) or the last (-1)."""
        self._go(to if to >= 0 else len(self._rows) + to)

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if (key := self.cursor_key) is not None:
            self.post_message(self.Chosen(self, key))

    def action_sideways(self, step: int) -> None:
        """Open or close a group, or scroll the columns sideways."""
        row = self._rows[self._cursor] if self._rows else None
        if row is not None and row.head:
            self.post_message(self.Turned(self, row.key, opened=step > 0))
        elif self.skipped is not None and 0 <= self.skipped + step < len(self.columns) and self._goes(step):
            self.skipped += step
            self._laid_out_for = -1
            self.refresh()
        elif row is not None and step < 0:
            self._go(next((at for at in range(self._cursor, -1, -1) if self._rows[at].head), self._cursor))

    def _go(self, to: int) -> None:
        to = max(0, min(to, len(self._rows) - 1))
        if to == self._cursor or not self._rows:
            return
        old, self._cursor = self._cursor, to
        self._show_cursor()
        for row in (old, to):
            self.refresh_lines(
                row * self.row_lines + HEADER_ROWS, self.row_lines
            )  # counted from the first row, whether visible or not
        self.post_message(self.Moved(self, self.cursor_key))

    def _show_cursor(self) -> None:
        first, last = self._cursor * self.row_lines, (self._cursor + 1) * self.row_lines - 1
        top, lines = self.scroll_offset.y, self.size.height - HEADER_ROWS
        if first < top:
            self.scroll_to(y=first, animate=False, force=True, immediate=True)
        elif last >= top + lines:
            self.scroll_to(y=last - lines + 1, animate=False, force=True, immediate=True)

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y < HEADER_ROWS:
            self._click_header(offset.x)
            return
        if (at := self.row_at(offset.y)) is not None:
            again = event.chain == 2 or (by_touch(self.app) and at == self._cursor)
            self._go(at)
            if again:
                self.action_choose()

    def _click_header(self, x: int) -> None:
        if (at := column_at(x, self._widths)) is not None:
            self.sort_by(self.columns[at].key)
