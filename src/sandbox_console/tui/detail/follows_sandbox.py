"""What the tabs share that follow a sandbox only while somebody looks at them: events, processes, stats."""

from __future__ import annotations

from collections.abc import Coroutine

from textual.widget import Widget
from textual.worker import Worker

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put_note
from sandbox_console.tui.state.fleet_state import Look
from sandbox_console.tui.widgets.table.table import FleetTable


class FollowsSandbox(Widget):
    """One worker for the sandbox in view. It is cancelled when the tab is left, or shows another sandbox.

    A tab gives the selector of its line of notes (`NOTE`), and a coroutine for `begin`.
    """

    NOTE = ""
    BY_STATUS = True
    """Whether it begins again when the sandbox has another status."""

    _shown: object = None
    _worker: Worker[None] | None = None

    def show(self, look: Look) -> None:
        """Follow a sandbox while the tab is in view."""
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
        """Show what is known of a sandbox; gives what follows it from now on, or None where nothing is to follow."""
        raise NotImplementedError

    def leave(self) -> None:
        """The sandbox that was followed is out of view."""

    def _note(self, text: str) -> None:
        put_note(self, self.NOTE, plain(text))

    def on_fleet_table_moved(self, event: FleetTable.Moved) -> None:
        event.stop()

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
