"""Lets the user choose the columns of the list, their order and widths, while the list is visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from msgspec import structs
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button

from sandbox_console.tui.fleet.columns import BY_KEY, LEAST_WIDTH, MOST_WIDTH, Chosen
from sandbox_console.tui.keys.keymap import hints
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

ALWAYS = ("state", "name")
_TABLE = (
    Column("shown", "SHOWN", 7, 7, priority=0),
    Column("column", "COLUMN", 10, 20, priority=0, flex=True),
    Column("width", "WIDTH", 6, 9, priority=0, align="right"),
)
_NAMES = {"secrets": "secrets", "restarts": "restarts", "memory": "memory", "net": "network"}
_BUTTONS = (
    ("shown", "Show, hide", "show"), ("up", "▲ Up", "shift(-1)"), ("down", "▼ Down", "shift(1)"),
    ("narrow", "− Narrow", "size(-1)"), ("wide", "+ Wide", "size(1)"), ("usual", "Usual", "usual"),
    ("done", "Done", "done"),
)  # fmt: skip


class ColumnsScreen(ModalScreen[None]):
    """Calls ``change`` with each choice, so that the list behind it shows it immediately."""

    DEFAULT_CSS = """
    ColumnsScreen { align: right middle; background: $background 30%; }
    ColumnsScreen > Vertical {
        width: 46; height: 22; max-height: 96%; background: $surface; border: round $primary; padding: 0 1;
        border-title-color: $primary; border-subtitle-color: $text-muted;
    }
    ColumnsScreen Horizontal { height: 1; margin-top: 0; }
    ColumnsScreen Button {
        min-width: 4; width: auto; height: 1; border: none; margin-right: 1; padding: 0; line-pad: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["columns"]

    def __init__(self, chosen: Chosen, change: Callable[[Chosen], None]) -> None:
        super().__init__()
        self.chosen = chosen
        self._change = change

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content("Columns")
            keys = ("columns-toggle", "shows"), ("columns-up", "moves"), ("columns-reset-width", "own width")
            box.border_subtitle = Content(hints(self, *keys))
            yield ColumnTable(_TABLE, id="columns-table")
            for part in (_BUTTONS[:4], _BUTTONS[4:]):
                with Horizontal():
                    for name, label, _ in part:
                        button = Button(Content(label), id=f"columns-{name}", compact=True)
                        button.active_effect_duration = 0  # further clicks would be lost during the effect
                        yield button

    def on_mount(self) -> None:
        self._draw()
        self.query_one(FleetTable).focus()

    def _draw(self) -> None:
        widths = dict(self.chosen.widths)
        order = (*self.chosen.keys, *(key for key in BY_KEY if key not in self.chosen.keys))
        rows = []
        for key in order:
            shown = key in self.chosen.keys
            width = str(widths[key]) if key in widths else "own"
            cells = ("✓" if shown else "", _NAMES.get(key, BY_KEY[key].title.lower()), width)
            rows.append(Row(key, cells, ("ok", "" if shown else "dim", "dim")))
        self.query_one(FleetTable).set_rows(rows)

    @property
    def _key(self) -> str:
        return str(self.query_one(FleetTable).cursor_key)

    def _set(self, chosen: Chosen) -> None:
        self.chosen = chosen
        self._draw()
        self._change(chosen)

    @on(FleetTable.Chosen)
    def _row_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        self.action_show()

    @on(Button.Pressed)
    async def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        for name, _, action in _BUTTONS:
            if event.button.id == f"columns-{name}":
                await self.run_action(action)
        if self.is_current:
            self.query_one(FleetTable).focus()

    def action_show(self) -> None:
        """Show or hide the column. State and name cannot be hidden."""
        key, keys = self._key, self.chosen.keys
        if key in ALWAYS:
            self.notify("State and name are always there.")
            return
        changed = tuple(one for one in keys if one != key) if key in keys else (*keys, key)
        self._set(structs.replace(self.chosen, keys=changed))

    def action_shift(self, step: int) -> None:
        """Move the column before or after its neighbour."""
        keys = list(self.chosen.keys)
        if self._key not in keys:
            return
        at = keys.index(self._key)
        to = max(0, min(len(keys) - 1, at + step))
        keys.insert(to, keys.pop(at))
        self._set(structs.replace(self.chosen, keys=tuple(keys)))

    def action_size(self, step: int) -> None:
        """Make the column one cell wider or narrower."""
        widths = dict(self.chosen.widths)
        column = BY_KEY[self._key]
        now = widths.get(column.key, column.max_width if step < 0 else column.min_width)
        widths[column.key] = min(MOST_WIDTH, max(LEAST_WIDTH, now + step))
        self._set(structs.replace(self.chosen, widths=tuple(widths.items())))

    def action_own(self) -> None:
        """Make the column as wide as its content, within limits."""
        left = tuple(pair for pair in self.chosen.widths if pair[0] != self._key)
        self._set(structs.replace(self.chosen, widths=left))

    def action_usual(self) -> None:
        """Restore the default columns."""
        self._set(Chosen())

    def action_done(self) -> None:
        """Close, and keep the choice."""
        self.dismiss(None)


class ColumnTable(FleetTable):
    """A table in which Left and Right change widths."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "screen.size(-1)", "Narrower", show=False),
        Binding("right", "screen.size(1)", "Wider", show=False),
        Binding("enter", "screen.show", "Show, hide", show=False),
    ]
