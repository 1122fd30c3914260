"""The list with marks, which choose rows for one action on all of them."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip

from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.tui.keys.main_keys import MARK_KEYS
from sandbox_console.tui.widgets.table.row_marks import Marks
from sandbox_console.tui.widgets.table.table import FleetTable

MARK = "✓"


class MarkedTable(FleetTable):
    """A table whose sandbox rows can be marked with keys, Ctrl+click and Shift+click. Marked rows have a sign.

    The sign is before the state. Posts `MarksChanged` when the marks change, and `MenuRequested` on a right click.
    """

    DEFAULT_CSS = """
    MarkedTable > .table--mark { color: $text-warning; }
    MarkedTable > .table--marked { background: $warning 12%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--mark", "table--marked"}
    BINDINGS: ClassVar[list[BindingType]] = MARK_KEYS

    class MarksChanged(Message):
        """The marks have changed."""

    class MenuRequested(Message):
        """A row was clicked with the right button. The cursor is on it."""

    marks: Marks

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.marks = Marks()

    @property
    def marked(self) -> tuple[SandboxRef, ...]:
        """The marked sandboxes, shown or hidden by a filter, in the order in which they were marked."""
        return tuple(key for key in self.marks.keys if isinstance(key, SandboxRef))

    def keep_marks(self, there: Container[Hashable]) -> None:
        """Remove the marks of rows that no longer exist."""
        if self.marks.retain(there):
            self._marks_changed()

    def drop_marks(self, keys: Iterable[Hashable]) -> None:
        """Remove these marks."""
        self.marks.drop(keys)
        self._marks_changed()

    def action_mark(self) -> None:
        """Mark or unmark the row under the cursor. On a group's head, close or open the group."""
        if isinstance(key := self.cursor_key, SandboxRef):
            self.marks.toggle(key)
            self._marks_changed()
        elif key is not None:
            self.action_choose()

    def action_mark_range(self) -> None:
        """Mark all rows from the last marked one to this one."""
        if isinstance(key := self.cursor_key, SandboxRef):
            self.marks.range_to(key, self._markable)
            self._marks_changed()

    def action_mark_step(self, step: int) -> None:
        """Mark the row under the cursor and the one that it moves to."""
        self.marks.add(key for key in (self.cursor_key,) if isinstance(key, SandboxRef))
        self.action_move(step)
        self.action_mark_range()

    def action_mark_all(self) -> None:
        """Mark every shown row."""
        self.marks.add(self._markable)
        self._marks_changed()

    def action_unmark(self) -> None:
        """Remove all marks."""
        self.marks.clear()
        self._marks_changed()

    @property
    def _markable(self) -> list[Hashable]:
        return [row.key for row in self.rows if isinstance(row.key, SandboxRef)]

    def _marks_changed(self) -> None:
        self.refresh()
        self.post_message(self.MarksChanged())

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        at = self.row_at(y)
        if not self.marks or at is None or self.rows[at].key not in self.marks:
            return strip
        if self.rows[at].key != self.cursor_key:  # the cursor's own background is more important
            tint = Style(bgcolor=self.get_component_rich_style("table--marked").bgcolor)
            strip = Strip(Segment.apply_style(strip, post_style=tint), strip.cell_length)
        ink = Style(color=self.get_component_rich_style("table--mark").color, bold=True)
        sign = Strip([Segment(MARK, (under.style or Style.null()) + ink) for under in strip.crop(1, 2)])
        return Strip.join([strip.crop(0, 1), sign, strip.crop(2)])

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        at = None if offset is None else self.row_at(offset.y)
        if at is None:
            return
        if event.ctrl or event.shift or event.button == 3:
            event.prevent_default()  # the list's own handler runs after this one
            self.move_to(self.rows[at].key)
        if event.button == 3:
            self.post_message(self.MenuRequested())
        elif event.ctrl:
            self.action_mark()
        elif event.shift:
            self.action_mark_range()
