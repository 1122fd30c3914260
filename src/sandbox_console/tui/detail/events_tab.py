"""The backend's events for the selected sandbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.detail.follows_sandbox import FollowsSandbox
from sandbox_console.tui.text.formatting import error_words
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

KEPT = 2000
DRAW_S = 0.1
COLUMNS = (
    Column("at", "TIME", 18, 18, priority=0),
    Column("what", "EVENT", 10, 20, priority=0),
    Column("detail", "DETAIL", 20, 400, priority=1, flex=True),
)
_BAD = ("oom", "die", "kill", "fail", "error", "lost", "denied")


class EventsPane(Vertical, FollowsSandbox):
    """The events, newest first. They are followed while the tab is open."""

    DEFAULT_CSS = """
    EventsPane { height: 1fr; }
    EventsPane > #events-note { height: auto; padding: 0 1; color: $text-muted; display: none; }
    EventsPane > #events-note.-on { display: block; }
    """

    NOTE = "#events-note"
    BY_STATUS = False

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._found: deque[GuestEvent] = deque(maxlen=KEPT)
        self._drawing = False

    def compose(self) -> ComposeResult:
        yield Static(id="events-note")
        yield FleetTable(COLUMNS, id="events-table")

    def begin(self, sandbox: Sandbox) -> Coroutine[None, None, None]:
        """Follow a sandbox's events from the first one."""
        self._note("Asking…")
        return self._follow(sandbox)

    def leave(self) -> None:
        """Discard the events of the sandbox that was shown."""
        self._found.clear()
        self._draw()

    async def _follow(self, sandbox: Sandbox) -> None:
        self.set_timer(1.0, self._none_yet)
        try:
            async for event in self._service.inside.guest_events(sandbox.ref, since=sandbox.created_at, follow=True):
                self._found.append(event)
                self._schedule()
        except ConsoleError as error:
            self._note(f"✕ {error_words(error)}")

    def _none_yet(self) -> None:
        if not self._found and self._worker is not None and not self._worker.is_finished:
            self._note("No events yet. New ones appear here as they happen.")

    def _schedule(self) -> None:
        if not self._drawing:
            self._drawing = True
            self.set_timer(DRAW_S, self._draw)

    def _draw(self) -> None:
        self._drawing = False
        if self._found:
            self._note("")
        rows = [_row(at, event) for at, event in enumerate(self._found)]
        for table in self.query(FleetTable):
            table.set_rows(rows[::-1])


def _row(number: int, event: GuestEvent) -> Row:
    at = datetime.fromtimestamp(event.at).astimezone()
    details = [event.detail] if event.detail else []
    details += [f"{key}={value}" for key, value in event.attributes.items()]
    style = "error" if any(word in event.what.lower() for word in _BAD) else ""
    cells = (
        f"{at:%m-%d %H:%M:%S}.{at.microsecond // 1000:03}",
        clean(event.what, cap=60),
        clean("  ".join(details), cap=2000),
    )
    return Row(number, cells, ("dim", style, "dim"))
