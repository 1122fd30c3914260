"""Shows the audit log: every action in the fleet, live and filtered, with the state of the chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from msgspec import structs
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.audit import AuditEntry, AuditQuery, Outcome, Verification
from sandbox_console.model.quantities import parse_duration_s
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.audit.chain_status import chain_words, clock_words
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.detail.audit_tab import audit_row, entry_words
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.text.formatting import many
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

PAGE = 500
_LOOK = "audit-look"
LOOK_S = 1.0
"""Seconds between checks for new rows, as other processes write the log too. Reading the newest row's id costs 1 ms."""
FILTER_FIELDS = ("actor", "action", "outcome", "backend", "target", "since")
TROUBLE = "denied,failed,unknown,timed_out"
COLUMNS = (
    Column("id", "ID", 5, 8, align="right", priority=1),
    Column("at", "TIME", 14, 14, priority=0),
    Column("action", "ACTION", 8, 14, priority=0),
    Column("outcome", "OUTCOME", 13, 13, priority=0),
    Column("sandbox", "SANDBOX", 10, 28, priority=0),
    Column("actor", "ACTOR", 10, 24, priority=1),
    Column("took", "TOOK", 6, 8, align="right", priority=2),
    Column("detail", "DETAIL", 12, 120, priority=1, flex=True),
)


class AuditScreen(Screen[SandboxRef | None]):
    """Returns the sandbox to go to, or None."""

    DEFAULT_CSS = """
    AuditScreen { background: $background; }
    AuditScreen > #audit-title { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    AuditScreen > #audit-chain { height: auto; padding: 0 1; background: $panel; }
    AuditScreen > #audit-line { height: 1; display: none; background: $panel; }
    AuditScreen > #audit-line.-on { display: block; }
    AuditScreen #audit-filter { width: 1fr; height: 1; border: none; padding: 0; background: $panel; }
    AuditScreen #audit-mark { width: 3; padding: 0 1; color: $primary; text-style: bold; }
    AuditScreen > #audit-problem { height: auto; padding: 0 1; color: $text-error; display: none; }
    AuditScreen > #audit-problem.-on { display: block; }
    AuditScreen Footer { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["audit"]

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__()
        self._service = console
        self._clock = clock
        self._entries: dict[int, AuditEntry] = {}
        self._text = ""
        self._limit = PAGE
        self._seen: object = None
        self._verified: tuple[float, Verification] | None = None
        self._verifying = False

    def compose(self) -> ComposeResult:
        yield Static(id="audit-title", markup=False)
        yield Static(id="audit-chain", markup=False)
        with Horizontal(id="audit-line"):
            yield Static("/", id="audit-mark", markup=False)
            yield Input(id="audit-filter", compact=True)
        yield Static(id="audit-problem", markup=False)
        yield FleetTable(COLUMNS, id="audit-rows")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.set_interval(LOOK_S, self._look_again)
        self._look_soon()
        self.action_verify()
        self._head()

    # --- reading the log

    def _look_soon(self) -> None:
        """Query the log, and cancel an earlier query that is no longer wanted."""
        self.run_worker(self._look(), group=_LOOK, exclusive=True)

    def _look_again(self) -> None:
        if not any(worker.group == _LOOK and not worker.is_finished for worker in self.workers):
            self._look_soon()  # a query that takes longer than the interval must be able to finish

    async def _look(self) -> None:
        query, problem = parse_filter(self._text, self._clock(), self._limit)
        try:
            version = (self._text, self._limit, await self._service.audit_log.version())
            if version != self._seen:
                entries = await self._service.history(query)
                self._show(entries)
                self._seen = version
        except ConsoleError as error:
            problem = error.message
        put_note(self, "#audit-problem", plain(f"✕ {problem}" if problem else ""))
        put(self, "#audit-chain", self._chain())

    def _show(self, entries: Sequence[AuditEntry]) -> None:
        self._entries = {entry.attempt.seq: entry for entry in entries}
        for table in self.query(FleetTable):
            table.set_rows([_row(entry) for entry in entries])
        self._head()

    def _head(self) -> None:
        more = f"  {hint(self, 'audit-older', 'shows older ones')}" if len(self._entries) >= self._limit else ""
        trouble = sum(entry.outcome in TROUBLE.split(",") for entry in self._entries.values())
        words: list[tuple[str, str]] = [
            ("Audit log", "bold $primary"),
            (f"  {many(len(self._entries), 'action')}", "$dim"),
        ]
        if trouble:
            words.append((f"  {trouble} denied, failed or unknown", "$text-warning"))
        if waiting := sum(not entry.attempt.placed for entry in self._entries.values()):
            words.append((f"  {waiting} not placed yet: another console keeps the log's lock", "$text-warning"))
        if self._text:
            words.append((f"  filter: {clean(self._text, cap=60)}", "$text-warning"))
        put(self, "#audit-title", Content.assemble(*words, (more, "$dim")))
        put(self, "#audit-chain", self._chain())

    def _chain(self) -> Content:
        shipping = self._service.shipper.state
        if shipping.problem:
            return self._state() + plain(f"\n✕ not shipped: {shipping.problem}", "$text-warning")
        if shipping.at is not None:
            return self._state() + plain(f"\n● all rows shipped at {clock_words(shipping.at)}", "$dim")
        return self._state()

    def _state(self) -> Content:
        return chain_words(self._service.audit_log.problem, self._verified, verifying=self._verifying)

    # --- keys

    def action_verify(self) -> None:
        """Verify the whole chain."""
        if not self._verifying:
            self._verifying = True
            self.run_worker(self._verify(), group="audit-verify")

    async def _verify(self) -> None:
        self._head()
        try:
            self._verified = (self._clock(), await self._service.verify())
        except ConsoleError as error:
            put_note(self, "#audit-problem", plain(f"✕ {error.message}"))
        finally:
            self._verifying = False
            self._head()

    def action_filter(self) -> None:
        """Open the filter line."""
        self.query_one("#audit-line").add_class("-on")
        self.set_focus(self.query_one("#audit-filter", Input))

    @on(Input.Changed, "#audit-filter")
    def _typed(self, event: Input.Changed) -> None:
        self._text = event.value.strip()
        self._look_soon()

    @on(Input.Submitted, "#audit-filter")
    def _kept(self) -> None:
        self.query_one("#audit-line").set_class(bool(self._text), "-on")
        self.query_one(FleetTable).focus()

    def action_trouble(self) -> None:
        """Show only rows that were denied, failed, timed out or are unknown, or show all again."""
        wanted = f"outcome:{TROUBLE}"
        self.query_one("#audit-filter", Input).value = "" if self._text == wanted else wanted
        self._kept()

    def action_older(self) -> None:
        """Show older rows."""
        self._limit += PAGE
        self._look_soon()

    def action_back(self) -> None:
        """Clear the filter, or leave if there is none."""
        if self._text or self.query_one("#audit-filter", Input).has_focus:
            self.query_one("#audit-filter", Input).value = ""
            self._text = ""
            self._kept()
            self._look_soon()
        else:
            self.dismiss(None)

    def action_go(self) -> None:
        """Go to the sandbox of the row under the cursor."""
        entry = self._entries.get(self._key())
        ref = ref_in(entry) if entry else None
        if ref is None:
            self.notify("This row names no sandbox.", severity="warning")
        else:
            self.dismiss(ref)

    def _key(self) -> int:
        key = self.query_one(FleetTable).cursor_key
        return key if isinstance(key, int) else 0

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        entry = self._entries.get(self._key())
        if entry is not None:
            self.app.push_screen(TextScreen(f"Audit row {entry.attempt.seq}", partial(entry_words, entry)))


def ref_in(entry: AuditEntry) -> SandboxRef | None:
    """Return the sandbox that an entry is about. For a create, it is in the outcome."""
    for row in (entry.end, entry.attempt):
        parts = (row.target if row else "").split("/", 2)
        if len(parts) == 3 and not parts[2].startswith("name:"):
            return SandboxRef(*parts)
    return None


def _row(entry: AuditEntry) -> Row:
    row = audit_row(entry)
    at, action, outcome, took, actor, detail = row.cells
    quiet = row.styles
    name = clean(_name(entry), cap=100)
    cells = (str(entry.attempt.seq), at, action, outcome, name, actor, took, detail)
    return Row(row.key, cells, ("dim", quiet[0], quiet[1], quiet[2], "", quiet[4], quiet[3], quiet[5]))


def _name(entry: AuditEntry) -> str:
    body = entry.attempt.body
    spec = body.get("spec")
    named = body.get("name") or (spec.get("name") if isinstance(spec, dict) else "")
    return str(named or entry.attempt.target)


def parse_filter(text: str, now: float, limit: int) -> tuple[AuditQuery, str]:
    """Return the typed text as a query, and the part that cannot be understood."""
    query, problem, words = AuditQuery(limit=limit), "", []
    for word in text.split():
        name, colon, value = word.partition(":")
        if not colon or name not in FILTER_FIELDS:
            words.append(word)
        elif value:
            try:
                query = _with(query, name, value, now)
            except ValueError as error:
                problem = str(error)
    return structs.replace(query, text=" ".join(words)), problem


def _with(query: AuditQuery, name: str, value: str, now: float) -> AuditQuery:
    if name == "since":
        return structs.replace(query, since=now - parse_duration_s(value))
    if name == "outcome":
        unknown = [word for word in value.split(",") if word not in set(Outcome)]
        if unknown:
            raise ValueError(f"outcome: {unknown[0]!r} is none of {', '.join(Outcome)}")
    changed: dict[str, Any] = {name: value}
    return structs.replace(query, **changed)
