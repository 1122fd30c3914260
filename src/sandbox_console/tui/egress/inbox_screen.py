"""The inbox: the denied hosts of the whole fleet, live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console, Feed, HostSeen
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.egress.egress_tab import DRAW_S
from sandbox_console.tui.egress.egress_text import FLEET_COLUMNS, host_row
from sandbox_console.tui.egress.host_actions import HostActions
from sandbox_console.tui.fleet.header import backend_name
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.text.formatting import many
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable

_NAMED = 5


class EgressScreen(Screen[None], HostActions):
    """Denials of every sandbox that has a gateway. ``o`` also shows allowed hosts."""

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
        *PAGE_KEYS["hosts"],
        Binding("escape,q,i", "dismiss", "Back"),
        Binding("question_mark", "app.help", "Help"),
    ]

    console_app = getters.app(BaseApp)

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__()
        self._service = console
        self._clock = clock
        self._denied_only = True
        self._drawn = -1

    def compose(self) -> ComposeResult:
        yield Static(id="egress-title", markup=False)
        yield Static(id="egress-problem", markup=False)
        yield FleetTable(FLEET_COLUMNS, id="fleet-egress")
        yield Static(id="egress-empty", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.set_interval(DRAW_S, self._draw_soon)
        self._draw()

    @property
    def _feed(self) -> Feed:
        return self._service.denials.everything

    def _draw_soon(self) -> None:
        if self._drawn != self._service.denials.version:
            self._draw()

    def _draw(self) -> None:
        self._drawn = self._service.denials.version
        hosts = self._feed.hosts(denied_only=self._denied_only)
        now = self._clock()
        for table in self.query(FleetTable):
            table.set_rows([host_row(host, now, fleet=True) for host in hosts])
        failed = any(host.unresolved or host.failed for host in hosts)
        kind = "asked for" if not self._denied_only else "denied or failed" if failed else "denied"
        left_out = self._feed.forgotten
        forgotten = f"  {left_out} older ones left out" if left_out else ""
        total = sum(host.denied for host in hosts)
        words = [
            ("Egress of all sandboxes", "bold $primary"),
            (f"  {many(len(hosts), 'host')} {kind}, {many(total, 'denial')}", "$dim"),
        ]
        put(self, "#egress-title", Content.assemble(*words, (forgotten, "$text-warning")))
        put_note(self, "#egress-empty", plain("" if hosts else self._why_empty()))
        put_note(self, "#egress-problem", plain(unread_words(sorted(self._service.denials.unread.values()))))

    def _why_empty(self) -> str:
        """Return why the list is empty. A backend that has not answered, or does not answer, may have denials."""
        state = self.console_app.fleet
        if state.connecting:
            return "Waiting for the backends …"
        silent = ", ".join(map(backend_name, state.dead))
        nothing = "Nothing was denied" if self._denied_only else "Nothing is on record"
        if silent:
            return f"{nothing} that is known: {silent} does not answer."
        return f"{nothing} that is known." if self._service.denials.unread else f"{nothing}."

    def _askers(self, host: HostSeen | None) -> Sequence[Sandbox]:
        there = self._service.hub.sandboxes
        return [there[ref] for ref in host.refs if ref in there] if host is not None else ()


def unread_words(unread: Sequence[tuple[str, str]]) -> str:
    """Return which sandboxes' denials may be missing, and why the last could not be read, or an empty string."""
    if not unread:
        return ""
    names = ", ".join(clean(name, cap=40) for name, _ in unread[:_NAMED])
    more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
    return f"✕ What {names}{more} asked for cannot be read, and is asked for again: {unread[-1][1]}"
