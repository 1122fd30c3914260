"""The base of the main screen's parts: the state, the list, the detail, and drawing them."""

from __future__ import annotations

from collections.abc import Callable

from textual import getters
from textual.screen import Screen

from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Console, find_paths
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.saved_json import folder_for
from sandbox_console.tui.detail.detail_pane import Detail
from sandbox_console.tui.fleet.fleet_pane import FleetList
from sandbox_console.tui.main.split import Split
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.widgets.table.marked_table import MarkedTable


class MainBase(Screen[None]):
    """Subclasses add keys, and `MainScreen` combines them. ``ticks`` is the number of seconds since it opened."""

    console_app = getters.app(BaseApp)

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__()
        self.service = console
        self._clock = clock
        self.state = FleetState()
        self.compared: Sandbox | None = None
        folder = folder_for(console.audit_log.actor, find_paths().state)
        self.split = Split(folder)
        self.fleet = FleetList(console.config.tui, folder, lambda: self.state)
        self.ticks = 0

    @property
    def table(self) -> MarkedTable:
        """The list."""
        return self.fleet.table

    @property
    def detail(self) -> Detail:
        """The tabs of the selected sandbox."""
        return self.query_one(Detail)

    @property
    def selected(self) -> Sandbox | None:
        """The sandbox under the cursor."""
        key = self.table.cursor_key
        return self.state.sandboxes.get(key) if isinstance(key, SandboxRef) else None

    @property
    def marked(self) -> list[Sandbox]:
        """The marked sandboxes, in the order in which they were marked."""
        return [self.state.sandboxes[ref] for ref in self.table.marked if ref in self.state.sandboxes]

    def draw(self) -> None:
        """Draw the current state in the chosen way."""
        raise NotImplementedError

    def show_detail(self) -> None:
        """Show the selected sandbox in its tabs."""
        raise NotImplementedError
