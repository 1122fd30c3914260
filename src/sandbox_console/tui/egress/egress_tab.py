"""The hosts that the selected sandbox may reach and has tried to reach, live."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.egress import EgressState
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Console, Feed, HostSeen, has_gateway
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.egress.egress_text import COLUMNS, host_row, rules_lines, with_hosts
from sandbox_console.tui.egress.host_actions import HostActions
from sandbox_console.tui.keys.keymap import hint, key_of
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.state.fleet_state import TabState
from sandbox_console.tui.widgets.table.table import FleetTable

DRAW_S = 0.25
RULES_S = 5.0
"""Seconds between two readings of the rules. Each checks whether the gateway is running."""


class EgressPane(Vertical, HostActions):
    """The hosts and rules of one sandbox. It is active only while the tab is open."""

    DEFAULT_CSS = """
    EgressPane { height: 1fr; }
    EgressPane > #egress-note { height: auto; padding: 0 1; color: $text-warning; display: none; }
    EgressPane > #egress-note.-on { display: block; }
    EgressPane > #egress-rules { height: auto; max-height: 8; padding: 0 1; background: $surface; display: none; }
    EgressPane > #egress-rules.-on { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["hosts"]
    console_app = getters.app(BaseApp)

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._clock: Callable[[], float] = time.time
        self._sandbox: Sandbox | None = None
        self._shown: tuple[object, ...] = ()
        self._followed: SandboxRef | None = None
        self._drawn: tuple[object, ...] = ()
        self._problem = ""
        self._state = EgressState()
        self._denied_only = False

    def compose(self) -> ComposeResult:
        yield Static(id="egress-note", markup=False)
        yield Static(id="egress-rules", markup=False)
        yield FleetTable(COLUMNS, id="egress-table")

    def on_mount(self) -> None:
        self._clock = self.console_app.now
        self.set_interval(DRAW_S, self._draw_soon)
        self.set_interval(RULES_S, self._look_again)

    def show(self, look: TabState) -> None:
        """Follow a sandbox while the tab is open. A different ``version`` means that its rules may have changed."""
        sandbox, active, version = look
        self._sandbox = sandbox
        wanted = (sandbox.ref, sandbox.status) if sandbox is not None and active else None
        if (wanted, version) == self._shown:
            return
        followed = self._shown[:1]
        self._shown = (wanted, version)
        if followed != (wanted,):
            self._follow_other(sandbox if wanted else None)
        elif wanted is not None and sandbox is not None:
            self._look(sandbox)

    def _follow_other(self, sandbox: Sandbox | None) -> None:
        self._followed = None
        if sandbox is None:
            return
        self._state = EgressState()
        if not has_gateway(sandbox):
            none = f"No network: this sandbox was created without egress. {with_hosts(key_of(self, 'edit'))}"
            self._tell(none if sandbox.managed else "Another tool made it: its egress is not ours to see.")
            self._draw()
            return
        self._problem, self._drawn = "", ()
        self._followed = sandbox.ref
        self._look(sandbox)

    @property
    def _feed(self) -> Feed:
        return self._service.denials.of(self._sandbox.ref) if self._sandbox is not None else Feed()

    def _look_again(self) -> None:
        if self._followed is not None and self._sandbox is not None:
            self._look(self._sandbox)

    def _look(self, sandbox: Sandbox) -> None:
        self.run_worker(self._ask_rules(sandbox), group="egress-rules", exclusive=True)

    async def _ask_rules(self, sandbox: Sandbox) -> None:
        try:
            self._state = await self._service.egress.state(sandbox.ref)
        except ConsoleError as error:
            self._problem = f"✕ {error.message}"
        else:
            silent = self._state.gateway
            self._problem = f"The gateway does not answer: {silent}" if silent else ""
        self._drawn = ()

    @property
    def _version(self) -> tuple[object, ...]:
        return self._followed, self._feed.version, self._unread

    @property
    def _unread(self) -> str:
        """The reason why the sandbox's records cannot be read, or an empty string if they can."""
        found = self._service.denials.unread.get(self._followed) if self._followed is not None else None
        return f"✕ {found[1]}" if found is not None else ""

    # --- drawing

    def _tell(self, text: str) -> None:
        put_note(self, "#egress-note", plain(text))

    def _draw_soon(self) -> None:
        timed = any(rule.until is not None for rule in self._state.rules)
        if self._followed is not None and (timed or self._drawn != self._version):
            self._draw()

    def _draw(self) -> None:
        self._drawn = self._version
        if self._followed is not None:
            self._tell(self._unread or self._problem)
        now = self._clock()
        rows = [host_row(host, now) for host in self._feed.hosts(denied_only=self._denied_only)]
        for table in self.query(FleetTable):
            table.set_rows(rows)
        shown = self._sandbox is not None and has_gateway(self._sandbox)
        words = rules_lines(self._state.rules, now, hint(self, "hosts-draft", "shows all")) if shown else []
        if shown and not rows:
            words = [*words, ("\nNothing was asked for yet.", "$dim")]
        put(self, "#egress-rules", Content.assemble(*words))
        for line in self.query("#egress-rules"):
            line.set_class(shown, "-on")

    def _askers(self, host: HostSeen | None) -> Sequence[Sandbox]:  # noqa: ARG002 - it is one sandbox's feed
        return (self._sandbox,) if self._sandbox is not None else ()

    def on_fleet_table_moved(self, event: FleetTable.Moved) -> None:
        event.stop()
