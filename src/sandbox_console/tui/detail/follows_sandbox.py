"""The base of the tabs that follow a sandbox only while they are open: events, processes, stats."""

from __future__ import annotations

from collections.abc import Coroutine

from textual.widget import Widget
from textual.worker import Worker

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put_note
from sandbox_console.tui.state.fleet_state import TabState
from sandbox_console.tui.widgets.table.table import FleetTable


class FollowsSandbox(Widget):
    """Runs one worker for the sandbox shown. It is cancelled when the tab is left or shows another sandbox.

    A tab defines the selector of its notes line (`NOTE`), and `begin`, which returns a coroutine.
    """

    NOTE = ""
    BY_STATUS = True
    """Whether it starts again when the sandbox's status changes."""

    _shown: object = None
    _worker: Worker[None] | None = None

    def show(self, look: TabState) -> None:
        """Follow a sandbox while the tab is open."""
        sandbox, active, _ = look
        followed = sandbox if active else None
        wanted = (followed.ref, followed.status if self.BY_STATUS else None) if followed is not None else None
        if wanted == self._shown:
            return
        self._shown = wanted
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
        self.leave()
        work = self.begin(followed) if followed is not None else None
        if work is not None:
            self._worker = self.run_worker(work, group="follow")

    def begin(self, sandbox: Sandbox) -> Coroutine[None, None, None] | None:
        """Show what is known about a sandbox. Returns the coroutine that follows it, or None if there is none."""
        raise NotImplementedError

    def leave(self) -> None:
        """Handle that the sandbox that was followed is no longer shown."""

    def _note(self, text: str) -> None:
        put_note(self, self.NOTE, plain(text))

    def on_fleet_table_moved(self, event: FleetTable.Moved) -> None:
        event.stop()

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
