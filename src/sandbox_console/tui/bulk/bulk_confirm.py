"""The question before a verb on several sandboxes: what it affects, and what is left out and why."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from sandbox_console.model.action import Action
from sandbox_console.model.sandbox import spec_of
from sandbox_console.model.text import clean
from sandbox_console.tui.actions.cli_command import bulk_command
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.bulk.bulk_run import REFUSED, Item
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen, Keep
from sandbox_console.tui.fleet.fleet_rows import FOREIGN
from sandbox_console.tui.state.verbs import Verb
from sandbox_console.tui.text.formatting import STATUS, many, name_and_id, sandbox_host, short_id, shown_name
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Cell, Column

_ASKED = (
    Column("will", "WILL", 8, 8, priority=0),
    Column("name", "NAME", 10, 30, priority=0),
    Column("id", "ID", 12, 12, priority=0),
    Column("state", "STATE", 10, 12, priority=0),
    Column("where", "WHERE", 6, 18, priority=2),
    Column("why", "NOTE", 14, 120, priority=0, flex=True),
)


_COMMAND_LINES = 3
_WIDTH, _FRAME = 116, 4


class BulkConfirm(ConfirmScreen):
    """One question for all of them, with names, ids and states, and what is left out and why.

    ``mask`` hides values of secrets in an action before it is shown as a command.
    """

    DEFAULT_CSS = """
    BulkConfirm > Vertical { width: 116; max-width: 96%; max-height: 96%; }
    BulkConfirm FleetTable { height: auto; max-height: 24; min-height: 2; margin-bottom: 1; background: $surface; }
    BulkConfirm.-short FleetTable { max-height: 7; }
    BulkConfirm.-short Static { margin-bottom: 0; }
    BulkConfirm #command, BulkConfirm.-short #command { max-height: 3; text-wrap: wrap; }
    BulkConfirm #touched-note { max-height: 6; }
    BulkConfirm.-short #touched-note { max-height: 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page(-1)", "Up", show=False),
        Binding("pagedown", "page(1)", "Down", show=False),
        Binding("up", "line(-1)", "Up", show=False),
        Binding("down", "line(1)", "Down", show=False),
    ]

    def __init__(self, verb: Verb, items: Sequence[Item], mask: Callable[[Action], Action]) -> None:
        to_do = [item for item in items if item.to_do]
        word = f"{verb.name} {len(to_do)}"
        super().__init__(
            f"{verb.label} {many(len(to_do))}?",
            _body(verb, items),
            f"{verb.label} {len(to_do)}",
            command=bulk_command([mask(item.action) for item in to_do], [spec_of(item.sandbox) for item in to_do]),
            danger=verb.danger,
            accepts=(lambda text: text.strip().casefold() == word) if verb.danger and to_do else None,
            to_type=word,
            keep=Keep("Commit first") if any(item.keep for item in to_do) else None,
        )
        self._items = items
        self._verb_name = verb.name

    def more(self) -> ComposeResult:
        yield FleetTable(_ASKED, id="touched")
        yield Static(id="touched-note", markup=False)

    def on_mount(self) -> None:
        table = self.query_one(FleetTable)
        table.can_focus = False
        table.set_rows([_asked_row(at, item, self._verb_name) for at, item in enumerate(self._items)])
        self._show_note()
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def on_fleet_table_moved(self) -> None:
        self._show_note()

    def _show_note(self) -> None:
        key = self.query_one(FleetTable).cursor_key
        item = self._items[key] if isinstance(key, int) else None
        note = clean(item.cause or item.note, cap=400) if item else ""
        shown = f"▸ {shown_name(item.sandbox)}: {note}" if item and note else ""
        put(self, "#touched-note", plain(shown, "$text-warning"))

    def _fit(self) -> None:
        self.set_class(self.app.size.height < 34, "-short")
        width = min(_WIDTH, self.app.size.width * 96 // 100) - _FRAME
        put(self, "#command", Content(_in_lines(f"$ {self._command}", width)))

    @property
    def keeps(self) -> bool:
        """Whether to save first what would be lost."""
        return self._keep is not None and self._keep.chosen

    @property
    def _agreed(self) -> bool:
        return any(item.to_do for item in self._items) and super()._agreed

    def action_page(self, step: int) -> None:
        """Move through the list by pages."""
        self.query_one(FleetTable).action_page(step)

    def action_line(self, step: int) -> None:
        """Move through the list by lines."""
        self.query_one(FleetTable).action_move(step)


def _in_lines(command: str, width: int) -> str:
    """A command in a few lines, with a mark where it is cut: Textual marks no cut in wrapped text."""
    lines = [part for line in command.split("\n") for part in textwrap.wrap(line, width, break_on_hyphens=False)]
    if len(lines) > _COMMAND_LINES:
        lines = [*lines[: _COMMAND_LINES - 1], lines[_COMMAND_LINES - 1][: width - 1] + "…"]
    return "\n".join(lines)


def _body(verb: Verb, items: Sequence[Item]) -> Content:
    skipped = sum(not item.to_do for item in items)
    refused = sum(item.to_do and item.note.startswith(REFUSED) for item in items)
    parts = [(verb.effect, "")]
    if skipped:
        parts.append((f"  {skipped} of {len(items)} marked do not fit and are left out.", "$text-warning"))
    if refused:
        parts.append((f"  {refused} will be refused and recorded.", "$text-warning"))
    return Content.assemble(*parts)


def _asked_row(at: int, item: Item, verb: str) -> Row:
    sandbox = item.sandbox
    glyph, style = STATUS[sandbox.status]
    will = verb if item.to_do else "– skip"
    name, id_ = name_and_id(sandbox)
    shown = Cell(name, end=("" if sandbox.managed else FOREIGN) + id_)
    note = clean(item.cause or item.note, cap=200)
    cells = (
        will, shown, short_id(sandbox), f"{glyph} {sandbox.status}", sandbox_host(sandbox), note,
    )  # fmt: skip
    quiet = "" if item.to_do else "dim"
    return Row(at, cells, (quiet, quiet, "dim", style, "dim", "warn" if note else ""))
