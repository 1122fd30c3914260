"""The audit log's rows for the selected sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.audit import AuditEntry, AuditQuery, AuditRow, Outcome
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put_note
from sandbox_console.tui.state.fleet_state import TabState
from sandbox_console.tui.text.wrap import Part, hanging
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

LIMIT = 200
_LABEL = 11
COLUMNS = (
    Column("at", "TIME", 14, 14, priority=0),
    Column("action", "ACTION", 8, 10, priority=0),
    Column("outcome", "OUTCOME", 13, 13, priority=0),
    Column("took", "TOOK", 6, 8, align="right", priority=2),
    Column("actor", "ACTOR", 10, 24, priority=1),
    Column("detail", "DETAIL", 12, 120, priority=1, flex=True),
)
_OUTCOMES: dict[str, tuple[str, str]] = {
    Outcome.OK: ("●", "ok"),
    Outcome.FAILED: ("✕", "error"),
    Outcome.DENIED: ("⊘", "error"),
    Outcome.UNSUPPORTED: ("○", "warn"),
    Outcome.CANCELLED: ("■", "warn"),
    Outcome.TIMED_OUT: ("◷", "warn"),
    Outcome.UNKNOWN: ("?", "error"),
}


class AuditPane(Vertical):
    """The rows of one sandbox, newest first. They are read again whenever an action has ended."""

    DEFAULT_CSS = """
    AuditPane { height: 1fr; }
    AuditPane > #audit-note { height: auto; padding: 0 1; color: $text-muted; display: none; }
    AuditPane > #audit-note.-on { display: block; }
    """

    class Opened(Message):
        """A row was opened."""

        def __init__(self, entry: AuditEntry) -> None:
            super().__init__()
            self.entry = entry

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._shown: tuple[object, ...] = ()
        self._entries: dict[int, AuditEntry] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="audit-note")
        yield FleetTable(COLUMNS, id="audit-table")

    def show(self, look: TabState) -> None:
        """Show a sandbox's rows. A different ``version`` means that there may be new ones."""
        sandbox, active, version = look
        wanted = (sandbox.ref if sandbox else None, version)
        if active and wanted != self._shown:
            self._shown = wanted
            self.run_worker(self._load(sandbox), exclusive=True, group="audit")

    async def _load(self, sandbox: Sandbox | None) -> None:
        note = ""
        entries: Sequence[AuditEntry] = ()
        try:
            if sandbox is not None:
                entries = await self._service.history(AuditQuery(limit=LIMIT, target=str(sandbox.ref)))
                note = "" if entries else "No audit rows: this sandbox was not created or changed from this console."
        except ConsoleError as error:
            note = f"✕ {error.message}"
        self._entries = {entry.attempt.seq: entry for entry in entries}
        for table in self.query(FleetTable):
            table.set_rows([audit_row(entry) for entry in entries])
        put_note(self, "#audit-note", plain(note))

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        if isinstance(event.key, int) and event.key in self._entries:
            self.post_message(self.Opened(self._entries[event.key]))

    def on_fleet_table_moved(self, event: FleetTable.Moved) -> None:
        event.stop()


def audit_row(entry: AuditEntry) -> Row:
    """Return the row of one attempt and its outcome."""
    attempt, end = entry.attempt, entry.end
    glyph, style = _OUTCOMES.get(entry.outcome, ("?", "warn")) if end else ("◌", "accent")
    took = f"{end.dur_us / 1e6:.2f}s" if end and end.dur_us is not None else ""
    detail = ("" if attempt.placed else "not placed yet  ") + clean(detail_of(entry), cap=400)
    cells = (_moment(attempt.at_ns), clean(attempt.action), f"{glyph} {clean(entry.outcome) or 'in flight'}", took,
             clean(attempt.actor, cap=100), detail)  # fmt: skip
    return Row(attempt.seq, cells, ("dim", "", style, "dim", "dim", style if style in ("error", "warn") else "dim"))


def detail_of(entry: AuditEntry) -> str:
    """Return the most useful detail of an attempt: its error, or its arguments, or how a shell ended."""
    if entry.end is not None and (error := entry.end.body.get("error")):
        return str(error)
    body = entry.attempt.body
    if isinstance(argv := body.get("argv"), list):
        return " ".join(map(str, argv))
    if isinstance(diff := body.get("diff"), dict):
        return ", ".join(diff)
    for note in entry.notes:
        if "duration_s" in note.body:
            return f"ended after {note.body['duration_s']} s, exit {note.body.get('exit')}"
    return ", ".join(f"{key}={body[key]}" for key in ("signal", "grace_s", "force", "shell") if body.get(key))


def entry_words(entry: AuditEntry, width: int = 0) -> Content:
    """Return an attempt with all its rows, for reading. Rows have ``width`` cells; 0 means no limit."""
    rows = [row for row in (entry.attempt, entry.end, *entry.notes) if row is not None]
    return Content("\n\n").join(
        [Content.assemble(*hanging(_row_words(row), width or 10_000, _LABEL + 1)) for row in rows]
    )


def _row_words(row: AuditRow) -> Iterator[Part]:
    data = row.as_dict()
    body = data.pop("body")
    for key, value in data.items():
        text = f"{value}  {_moment(row.at_ns)}" if key == "at_ns" else str(value)
        yield f"{key:<{_LABEL}} {clean(text)}\n", ""
    diff = body.get("diff") if isinstance(body, dict) else None
    for key, change in (diff if isinstance(diff, dict) else {}).items():
        yield from _change_words(key, change)
    yield f"{'body':<{_LABEL}} {clean(json.dumps(body))}", ""


def _change_words(key: str, change: object) -> Iterator[Part]:
    """Yield a changed field of the spec, before and after. For env, only the names are on record."""
    title = f"{'change':<{_LABEL}} {clean(key)}"
    if not isinstance(change, list) or len(change) != 2 or key == "env":
        yield f"{title}: {clean(json.dumps(change))}\n", ""
        return
    before, after = (clean(json.dumps(value)) for value in change)
    yield f"{title}\n", ""
    yield f"{'':<{_LABEL}} - {before}\n", "$text-error"
    yield f"{'':<{_LABEL}} + {after}\n", "$text-success"


def _moment(at_ns: int) -> str:
    """Return a time in the local zone. A tampered row may have one that is out of the calendar's range."""
    try:
        return f"{datetime.fromtimestamp(at_ns / 1e9).astimezone():%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "?"
