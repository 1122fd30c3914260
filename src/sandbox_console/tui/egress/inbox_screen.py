"""What was denied in the whole fleet, by host, live: the inbox of egress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Console, Feed, HostSeen
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.egress.egress_tab import DRAW_S
from sandbox_console.tui.egress.egress_text import FLEET_COLUMNS, host_row
from sandbox_console.tui.egress.host_actions import HOST_KEYS, HostActions
from sandbox_console.tui.fleet.header import backend_name
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import shown_name
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable

_NAMED = 5


class EgressScreen(HostActions, Screen[None]):
    """Denials of every sandbox that has a gateway; with ``o`` what was allowed too."""

    DEFAULT_CSS = """
    EgressScreen { background: $background; }
    EgressScreen > #egress-title { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    EgressScreen > #egress-problem { height: auto; padding: 0 1; color: $text-error; display: none; }
    EgressScreen > #egress-problem.-on { display: block; }
    EgressScreen > #egress-empty { height: auto; padding: 1 2; color: $text-muted; display: none; }
    EgressScreen > #egress-empty.-on { display: block; }
    EgressScreen Footer { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *HOST_KEYS,
        Binding("escape,q,i", "dismiss", "Back"),
        Binding("question_mark", "app.help", "Help"),
    ]

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__()
        self._service = console
        self._clock = clock
        self._feed = Feed()
        self._sandboxes: dict[SandboxRef, Sandbox] = {}
        self._unread: dict[SandboxRef, tuple[str, str]] = {}
        self._broken = ""
        self._denied_only = True
        self._dirty = True

    def compose(self) -> ComposeResult:
        yield Static(id="egress-title", markup=False)
        yield Static(id="egress-problem", markup=False)
        yield FleetTable(FLEET_COLUMNS, id="fleet-egress")
        yield Static(id="egress-empty", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.set_interval(DRAW_S, self._draw_soon)
        self.run_worker(self._follow(), group="egress-feed", exclusive=True)
        self._draw()

    async def _follow(self) -> None:
        try:
            async with aclosing(self._service.egress.feed(follow=True, refused=self._refused)) as feed:  # type: ignore[type-var]
                async for sandbox, record in feed:
                    self._sandboxes[sandbox.ref] = sandbox
                    self._feed.add(sandbox.ref, sandbox.name, record)
                    self._dirty = True
        except ConsoleError as error:
            self._broken, self._dirty = f"✕ {error.message}", True

    def _refused(self, sandbox: Sandbox, error: ConsoleError | None) -> None:
        """The records of one cannot be read, or can be again."""
        self._unread.pop(sandbox.ref, None)
        if error is not None:
            self._unread[sandbox.ref] = shown_name(sandbox), error.message
        self._dirty = True

    def _draw_soon(self) -> None:
        if self._dirty:
            self._draw()

    def _draw(self) -> None:
        self._dirty = False
        found = self._feed.hosts(denied_only=self._denied_only)
        now = self._clock()
        for table in self.query(FleetTable):
            table.set_rows([host_row(seen, now, fleet=True) for seen in found])
        what = "denied" if self._denied_only else "asked for"
        forgotten = f"  {self._feed.forgotten} older ones left out" if self._feed.forgotten else ""
        total = sum(seen.denied for seen in found)
        words = [
            ("Egress of all sandboxes", "bold $primary"),
            (f"  {len(found)} hosts {what}, {total} denials", "$dim"),
        ]
        put(self, "#egress-title", Content.assemble(*words, (forgotten, "$text-warning")))
        put_note(self, "#egress-empty", plain("" if found else self._why_empty()))
        put_note(self, "#egress-problem", plain(self._broken or unread_words(list(self._unread.values()))))

    def _why_empty(self) -> str:
        """A backend that has not answered, or does not, may know of denials."""
        state: FleetState = getattr(self.app, "fleet", FleetState())
        if state.connecting:
            return "Waiting for the backends …"
        silent = ", ".join(map(backend_name, state.dead))
        nothing = "Nothing was denied" if self._denied_only else "Nothing is on record"
        if silent:
            return f"{nothing} that is known: {silent} does not answer."
        return f"{nothing} that is known." if self._unread or self._broken else f"{nothing}."

    def _askers(self, seen: HostSeen | None) -> Sequence[Sandbox]:
        return [self._sandboxes[ref] for ref in seen.refs if ref in self._sandboxes] if seen is not None else ()


def unread_words(unread: Sequence[tuple[str, str]]) -> str:
    """Whose denials may be missing, by name, and why the last of them could not be read; empty where none are."""
    if not unread:
        return ""
    names = ", ".join(name for name, _ in unread[:_NAMED])
    more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
    return f"✕ What {names}{more} asked for cannot be read, and is asked for again: {unread[-1][1]}"
