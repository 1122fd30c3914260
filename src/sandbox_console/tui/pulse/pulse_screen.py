"""The whole fleet on one page: trouble first, then who is loudest, states, backends, load, and the audit log."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.audit import Verification
from sandbox_console.service import Console
from sandbox_console.tui.audit.chain_status import chain_words
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.detail.stats_tab import CPU, MEMORY
from sandbox_console.tui.keys.keymap import key_of
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.pulse import history as pulse
from sandbox_console.tui.pulse.loudest import loudest_words
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.widgets.graph import Graph
from sandbox_console.tui.widgets.key_bar import KeyBar

DRAW_S = 1.0


class PulseScreen(Screen[None]):
    """Redrawn each second from the state, without any requests to the backends."""

    DEFAULT_CSS = """
    PulseScreen { background: $background; }
    PulseScreen > #pulse-title { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    PulseScreen > #pulse-top { height: auto; max-height: 70%; scrollbar-size-vertical: 1; }
    PulseScreen #pulse-facts { grid-size: 2; grid-gutter: 0 2; height: auto; grid-rows: auto; }
    PulseScreen #pulse-facts Static { height: auto; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    PulseScreen > #pulse-graphs { grid-size: 2; grid-gutter: 0 2; height: 1fr; min-height: 4; max-height: 9; }
    PulseScreen Graph { height: 100%; }
    PulseScreen #pulse-trouble, PulseScreen #pulse-loudest {
        height: auto; padding: 0 1; border-bottom: solid $border-blurred; text-wrap: nowrap; text-overflow: ellipsis;
    }
    PulseScreen > #pulse-audit { height: auto; max-height: 3; padding: 0 1; }
    PulseScreen Footer { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["pulse"]

    def __init__(
        self, console: Console, history: pulse.History, state: Callable[[], FleetState], clock: Callable[[], float]
    ) -> None:
        super().__init__()
        self._service = console
        self._history = history
        self._state = state
        self._clock = clock
        self._verified: tuple[float, Verification] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="pulse-title", markup=False)
        with VerticalScroll(id="pulse-top"):
            yield Static(id="pulse-trouble", markup=False)
            yield Static(id="pulse-loudest", markup=False)
            with Grid(id="pulse-facts"):
                yield Static(id="pulse-states", markup=False)
                yield Static(id="pulse-backends", markup=False)
        with Grid(id="pulse-graphs"):
            yield Graph(CPU, id="pulse-cpu")
            yield Graph(MEMORY, id="pulse-memory")
        yield Static(id="pulse-audit", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.set_interval(DRAW_S, self._draw)
        self.run_worker(self._verify(), group="pulse-verify")
        self.call_after_refresh(self._draw)

    def on_resize(self) -> None:
        self._draw()

    async def _verify(self) -> None:
        try:
            self._verified = (self._clock(), await self._service.verify())
        except ConsoleError as error:
            self.notify(error.message, title="audit", severity="error")
        self._draw()

    def _draw(self) -> None:
        state, now, denials = self._state(), self._clock(), self._service.denials
        totals = list(self._history.totals)
        every_s = self._service.config.tui.stats_interval_s
        latest = totals[-1] if totals else pulse.total(state)
        put(self, "#pulse-title", _title(latest, state.missed))
        put(self, "#pulse-states", pulse.state_words(state, self.size.width // 2 - 2, key_of(self, "create")))
        put(self, "#pulse-backends", pulse.backend_words(state))
        put(self, "#pulse-trouble", pulse.trouble_words(state, denials.everything, now, len(denials.unread)))
        put(self, "#pulse-loudest", loudest_words(state))
        chain = chain_words(state.audit_problem, self._verified, verifying=self._verified is None)
        put(self, "#pulse-audit", Content.assemble(f"{'Audit log':<18}", chain))
        for graph in self.query("#pulse-cpu").results(Graph):
            graph.show([one.cpu_percent for one in totals], None, every_s)
        for graph in self.query("#pulse-memory").results(Graph):
            graph.show([one.memory_bytes for one in totals], None, every_s)


def _title(latest: pulse.Total, missed: int) -> Content:
    words = [("Pulse", "bold $primary"), (f"  {latest.measured} of {latest.running} running are measured", "$dim")]
    return Content.assemble(*words, plain(f"  {missed} events missed" if missed else "", "$text-warning"))
