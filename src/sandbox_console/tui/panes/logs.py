"""The output of the selected sandbox, followed for as long as it is looked at."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.timer import Timer
from textual.widgets import Static
from textual.worker import Worker

from sandbox_console.errors import BackendUnreachable, ConsoleError
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console
from sandbox_console.tui.safety import plain
from sandbox_console.tui.showing import put_note
from sandbox_console.tui.widgets.log_pane import LogPane
from sandbox_console.tui.widgets.log_view import LogView
from sandbox_console.tui.words import short_id, size

DEBOUNCE_S = 0.15
"""Running the cursor over the list must not open a stream for each row."""
TAIL = 10_000
RETRY_S = 2.0
"""A backend that is down is asked again so often, while its sandbox is looked at."""


class LogsPane(Vertical):
    """Follows one sandbox at a time; the stream is cancelled when another is shown or the pane is hidden."""

    DEFAULT_CSS = """
    LogsPane { height: 1fr; }
    LogsPane > #log-note { height: auto; padding: 0 1; color: $text-muted; display: none; }
    LogsPane > #log-note.-on { display: block; }
    """

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._sandbox: Sandbox | None = None
        self._active = False
        self._worker: Worker[None] | None = None
        self._timer: Timer | None = None
        self._last_ns = 0
        self.view = LogView(cap_bytes=console.config.tui.log_memory_mib * 1024 * 1024)

    def compose(self) -> ComposeResult:
        yield Static(id="log-note")
        yield LogPane(self.view)

    @property
    def following(self) -> bool:
        """Whether a stream is open."""
        return self._worker is not None and not self._worker.is_finished

    def show(self, sandbox: Sandbox | None, *, active: bool) -> None:
        """Look at a sandbox's output, or at none; ``active`` is whether the pane is on screen."""
        before, was_active = self._sandbox, self._active
        self._sandbox, self._active = sandbox, active
        if sandbox is None or not active:
            self._stop()
        elif before is None or before.ref != sandbox.ref:
            self._restart()
        elif not was_active or (before.started_at != sandbox.started_at and not self.following):
            self._begin()

    def _restart(self) -> None:
        self._stop()
        self.view.clear()
        self.view.action_tail()
        self._last_ns = 0
        self._note("")
        self._timer = self.set_timer(DEBOUNCE_S, self._begin)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None

    def _begin(self) -> None:
        self._stop()
        if self._sandbox is not None:
            self._worker = self.run_worker(self._follow(self._sandbox), group="logs")

    async def _follow(self, sandbox: Sandbox) -> None:
        # What is shown already is not asked for again: a stream that was left goes on after its last record.
        since = (self._last_ns + 1) / 1e9 if self._last_ns else None
        query = LogQuery(follow=True, tail=None if since else TAIL, since=since)
        try:
            await self._service.inspect(sandbox.ref)  # a backend that is back says so before its sandbox writes
            self._note("")
            async for batch in self._service.logs(sandbox.ref, query):
                self._note("")
                newer = [item for item in batch if item.at_ns > self._last_ns or not since]
                self._last_ns = max([self._last_ns, *(item.at_ns for item in newer)])
                self.view.append(newer)
        except ConsoleError as error:
            self._note(f"✕ {error.message}" + (f" ({error.hint})" if error.hint else ""))
            if isinstance(error, BackendUnreachable):
                self._timer = self.set_timer(RETRY_S, self._begin)
            return
        if not self.view.total:
            self._note("It wrote nothing.")

    def on_log_view_save_asked(self, event: LogView.SaveAsked) -> None:
        event.stop()
        if self._sandbox is not None:
            self.run_worker(self._save(self._sandbox), group="save", exclusive=True)

    async def _save(self, sandbox: Sandbox) -> None:
        # The name is made of characters that no file system or shell reads anything into.
        name = "".join(char if char.isascii() and char.isalnum() else "-" for char in sandbox.name)[:40]
        path = Path.cwd() / f"{name}-{short_id(sandbox)}-{datetime.now(UTC):%Y%m%d-%H%M%S}.log"
        try:
            written = await self.view.save(path)
        except OSError as error:
            self.notify(f"{path} cannot be written: {error.strerror}", title="save", severity="error")
        else:
            self.notify(f"{size(written)} saved to {path}")

    def _note(self, text: str) -> None:
        put_note(self, "#log-note", plain(text))
