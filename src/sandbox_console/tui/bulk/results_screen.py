"""The results page of a verb on several sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.bulk.bulk_confirm import BulkConfirm
from sandbox_console.tui.bulk.bulk_run import BulkRun, Item, ItemOutcome, summary
from sandbox_console.tui.detail.audit_tab import entry_words
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.keys.keymap import hint, hints
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.state.verbs import Verb
from sandbox_console.tui.text.formatting import many, sandbox_host, short_id, shown_name, span
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column, natural_widths

__all__ = ["SIGNS", "BulkConfirm", "BulkScreen"]

LOOK_S = 0.1
ROW_S = 2e-5
"""Seconds added for each row: finding what is new in 10,000 rows takes 6 ms."""
SIGNS = {
    ItemOutcome.WAITING: ("○", "dim"),
    ItemOutcome.RUNNING: ("↻", "accent"),
    ItemOutcome.OK: ("●", "ok"),
    ItemOutcome.FAILED: ("✕", "error"),
    ItemOutcome.DENIED: ("⊘", "warn"),
    ItemOutcome.UNSUPPORTED: ("⊘", "warn"),
    ItemOutcome.UNKNOWN: ("?", "error"),
    ItemOutcome.CANCELLED: ("◌", "warn"),
    ItemOutcome.SKIPPED: ("–", "dim"),
}
_ENDED = (
    Column("fate", "RESULT", 13, 13, priority=0),
    Column("name", "NAME", 10, 30, priority=0),
    Column("id", "ID", 12, 12, priority=0),
    Column("where", "WHERE", 6, 18, priority=2),
    Column("took", "TOOK", 5, 6, "right", 2),
    Column("audit", "AUDIT", 5, 8, "right", 1),
    Column("cause", "CAUSE", 14, 200, priority=0, flex=True),
)


class BulkScreen(Screen[None]):
    """Shows the outcome for each sandbox. The page can be left while the actions continue."""

    DEFAULT_CSS = """
    BulkScreen { background: $background; }
    BulkScreen > #bulk-title { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    BulkScreen > #bulk-note { height: auto; max-height: 4; padding: 0 1; background: $panel; color: $text-muted; }
    BulkScreen FleetTable:focus > .table--cursor { background: $block-cursor-background; color: $foreground; }
    BulkScreen Footer { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["results"]

    def __init__(self, run: BulkRun, console: Console, again: Callable[[Verb, Sequence[Sandbox]], object]) -> None:
        super().__init__()
        self.run_shown = run
        self._service = console
        self._again = again
        self._seen = -1
        self._shown: list[tuple[object, ...]] = [()] * len(run.items)
        self._rows: list[Row] = [_ended_row(at, item) for at, item in enumerate(run.items)]
        self._natural = natural_widths(_ENDED, [row.cells for row in self._rows])

    def compose(self) -> ComposeResult:
        yield Static(id="bulk-title", markup=False)
        yield Static(id="bulk-note", markup=False)
        yield FleetTable(_ENDED, id="bulk-rows")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.set_interval(LOOK_S + len(self.run_shown.items) * ROW_S, self._look)
        self._look()

    def _look(self) -> None:
        run = self.run_shown
        if run.version == self._seen:
            return
        self._seen = run.version
        self._remake()
        for table in self.query(FleetTable):
            table.set_rows(self._rows, self._natural)
        put(self, "#bulk-title", title_words(run))
        self._note()

    def _remake(self) -> None:
        """Rebuild the rows that have news."""
        changed: list[Row] = []
        for at, item in enumerate(self.run_shown.items):
            known = (item.fate, item.took_s, item.audit_id, item.cause)
            if known != self._shown[at]:
                self._shown[at] = known
                self._rows[at] = row = _ended_row(at, item)
                changed.append(row)
        if changed:
            self._natural = list(map(max, self._natural, natural_widths(_ENDED, [row.cells for row in changed])))

    def on_fleet_table_moved(self) -> None:
        self._note()

    def _note(self) -> None:
        item = self._picked()
        words = "Enter opens the audit row." if self.run_shown.done else self._going_on()
        put(self, "#bulk-note", plain(f"{shown_name(item.sandbox)}: {item.cause}" if item and item.cause else words))

    def _going_on(self) -> str:
        return hints(self, ("results-back", "goes back, and it goes on."), ("results-stop", "begins no more."))

    def _picked(self) -> Item | None:
        key = self.query_one(FleetTable).cursor_key
        return self.run_shown.items[key] if isinstance(key, int) else None

    async def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        item = self._picked()
        if item is None or item.audit_id is None:
            self.notify("It has no audit row." if self.run_shown.done else "It has no audit row yet.")
            return
        try:
            entry = await self._service.audit_entry(item.audit_id)
        except ConsoleError as error:
            self.notify(error.message, severity="error")
            return
        self.app.push_screen(TextScreen(f"Audit row {item.audit_id}", partial(entry_words, entry)))

    def action_stop(self) -> None:
        """Start nothing more. What is in flight continues."""
        if self.run_shown.with_fate(ItemOutcome.WAITING):
            self.run_shown.stop()
        else:
            self.notify("No change is waiting any longer.")

    def action_again(self) -> None:
        """Try those that did not succeed again, after the question."""
        run = self.run_shown
        rest = [
            item.sandbox
            for item in run.items
            if item.fate not in (ItemOutcome.OK, ItemOutcome.WAITING, ItemOutcome.RUNNING)
        ]
        if not run.done:
            self.notify("It has not finished yet.", severity="warning")
        elif not rest:
            self.notify("Everything succeeded.")
        else:
            self.dismiss(None)
            self._again(run.verb, rest)

    def action_copy(self) -> None:
        """Copy the results as text."""
        self.app.copy_to_clipboard("\n".join(result_lines(self.run_shown)))
        self.notify("Copied the results")

    def action_leave(self) -> None:
        """Go back. What is in flight continues."""
        if not self.run_shown.done:
            again = "; ".join(filter(None, ("It goes on", hint(self, "bulk-results", "shows it again"))))
            self.notify(f"{self.run_shown.verb.name}: {summary(self.run_shown)}. {again}.")
        self.dismiss(None)


def title_words(run: BulkRun) -> Content:
    """Return the verb and its progress."""
    over = "done" if run.done else f"{len(run.with_fate(ItemOutcome.WAITING, ItemOutcome.RUNNING))} to go"
    parts = [(f"{run.verb.label} {many(len(run.items))}", "bold $primary"), (f"  {over}  ", "$dim")]
    styles = {"ok": "$text-success", "error": "$text-error", "warn": "$text-warning", "accent": "$text-accent"}
    counts = run.counts
    for fate, (sign, style) in SIGNS.items():
        if count := counts[fate]:
            parts.append((f"  {sign} {count} {fate}", styles.get(style, "$dim")))
    return Content.assemble(*parts)


def result_lines(run: BulkRun) -> list[str]:
    """Return a line for each sandbox, for the clipboard or a terminal."""
    return [
        f"{item.fate}\t{clean(str(item.sandbox.ref))}\t{shown_name(item.sandbox)}\t{clean(item.cause)}".rstrip()
        for item in run.items
    ]


def _ended_row(at: int, item: Item) -> Row:
    sandbox = item.sandbox
    sign, style = SIGNS[item.fate]
    took = "" if item.took_s is None else f"{item.took_s:.1f}s" if item.took_s < 100 else span(item.took_s)
    audit = "" if item.audit_id is None else str(item.audit_id)
    cells = (
        f"{sign} {item.fate}", shown_name(sandbox), short_id(sandbox), sandbox_host(sandbox), took, audit,
        clean(item.cause, cap=400),
    )  # fmt: skip
    return Row(at, cells, (style, "", "dim", "dim", "dim", "dim", style if item.cause else ""))
