"""The log of the selected sandbox, of several, or of a removed one."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.timer import Timer
from textual.widgets import Static
from textual.worker import Worker

from sandbox_console.errors import ConsoleError
from sandbox_console.logs.pattern import compile_pattern
from sandbox_console.logs.recent_logs import RecentLog, RecentLogs
from sandbox_console.logs.store import LineStore
from sandbox_console.model.log import LogItem
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Config, Console
from sandbox_console.tui.base.browser_files import downloads, refused_by_relay, send_parts
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put_note
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.logs.log_feed import FOLLOWED, Feed, StreamState
from sandbox_console.tui.logs.merged_logs import Group, Merged
from sandbox_console.tui.logs.older_lines_loader import OlderLinesLoader
from sandbox_console.tui.logs.removed_logs import GoneScreen, gone_logs
from sandbox_console.tui.text.formatting import error_words, many, shown_name, size, span
from sandbox_console.tui.widgets.log.log_line import Rule
from sandbox_console.tui.widgets.log.log_lines import Patterns
from sandbox_console.tui.widgets.log.log_pane import LogPane
from sandbox_console.tui.widgets.log.log_view import LogView

DEBOUNCE_S = 0.15
"""Seconds to wait, so that moving the cursor through the list does not open a stream for each row."""
TAIL = 10_000
_NOTHING = "It wrote nothing."


class LogsPane(Vertical):
    """Follows one sandbox or several merged. Streams are cancelled when others are shown or the pane is hidden."""

    DEFAULT_CSS = """
    LogsPane { height: 1fr; }
    LogsPane > #log-note { height: auto; padding: 0 1; color: $text-muted; display: none; }
    LogsPane > #log-note.-on { display: block; }
    """

    def __init__(self, console: Console, *, id: str | None = None, clock: Callable[[], float] = time.time) -> None:
        super().__init__(id=id)
        self._service = console
        self._clock = clock
        self._sandbox: Sandbox | None = None
        self._active = False
        self._worker: Worker[None] | None = None
        self._timer: Timer | None = None
        self._feed: Feed | None = None
        self._merged: Merged | None = None
        self._gone: RecentLog | None = None
        self._live: Callable[[SandboxRef], bool] = lambda _: True
        self._noted = ""
        self._cap = console.config.tui.log_memory_mib << 20
        self._shelf = RecentLogs(self._cap)
        self.view = LogView(cap_bytes=self._cap, rules=rules_of(console.config))
        self.view.look.json = console.config.logs.json
        self._older = OlderLinesLoader(console, self.view)
        self._patterns: dict[SandboxRef, Patterns] = {}
        self._shown: SandboxRef | None = None
        self._wanted: tuple[SandboxRef, int] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="log-note")
        yield LogPane(self.view)

    @property
    def following(self) -> bool:
        """Whether a stream is open."""
        stream = self._merged or self._feed
        return self._worker is not None and not self._worker.is_finished and stream is not None and stream.stand.open

    # --- one sandbox

    def show(self, sandbox: Sandbox | None, *, active: bool) -> None:
        """Show a sandbox's output, or none. ``active`` is whether the pane is on screen."""
        before, was_active = self._sandbox, self._active
        self._sandbox, self._active = sandbox, active
        changed = (before.ref if before else None) != (sandbox.ref if sandbox else None)
        if self._feed is not None and sandbox is not None and not changed:
            self._feed.renew(sandbox)
            self._tell_stand()
        # If the selected one disappeared, the user did not choose another: other logs that are shown stay.
        if changed and before is not None and not (self.of_others and not self._live(before.ref)):
            self._leave(before)
        if sandbox is None or not active:
            self._stop()
        elif self._merged is not None or self._gone is not None:
            if not was_active and self._merged is not None:
                self._begin()
        elif changed or self._feed is None:
            self._enter(sandbox)
        elif not was_active:
            self._begin()

    def renew(self, now: Mapping[SandboxRef, Sandbox]) -> None:
        """Update the sandboxes that are shown together."""
        if self._merged is not None:
            self._merged.renew(now)

    def note_live(self, live: Callable[[SandboxRef], bool]) -> None:
        """Find out which of the sandboxes that were shown are gone."""
        self._live = live
        for ref in self._shelf.refs():
            if not live(ref):
                self._shelf.note_gone(ref, self._clock())

    def _leave(self, sandbox: Sandbox) -> None:
        self._stop()
        self._keep_gone()
        if self._feed is not None and self._merged is None and self._gone is None:  # else the view shows another's log
            self._shelf.put(RecentLog(sandbox.ref, shown_name(sandbox), self.view.store, self._feed.places))
        self._merged = self._gone = self._feed = None

    def _enter(self, sandbox: Sandbox) -> None:
        self._stop()
        log = self._shelf.take(sandbox.ref)
        store = log.store if log else LineStore(self._cap)
        self._feed = Feed(self._service, sandbox, self._take, self._note, store.take_partials)
        if log:
            self._feed.places = log.places
        self._show_store(store, sandbox.ref)
        self._note("")
        self._timer = self.set_timer(DEBOUNCE_S, self._begin)

    def _show_store(self, store: LineStore, whose: SandboxRef | None, names: Sequence[str] = ()) -> None:
        """Show a log. Its search and filter belong to it, and are restored with it."""
        if self._shown is not None:
            self._patterns[self._shown] = self.view.patterns
        self._shown = whose
        self.view.show_store(store, names, self._patterns.pop(whose, Patterns()) if whose else Patterns())
        self.view.action_tail()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
            self.workers.cancel_group(self, "older")
            self.view.older = ""

    def _begin(self) -> None:
        self._stop()
        if self._merged is not None:
            self._worker = self.run_worker(self._merged.follow, group="logs")
        elif self._feed is not None and self._sandbox is not None and self._gone is None:
            self._worker = self.run_worker(partial(self._feed.follow, TAIL), group="logs")
            if self.view.patterns != Patterns():
                self._load_older_lines(to_start=False)

    def _take(self, items: Sequence[LogItem]) -> None:
        if self._noted == _NOTHING:
            self._note("")
        self.view.append(items)
        self._go_to_wanted()
        if (problem := self._service.retained.problem) and not self._noted:
            self._note(f"⚠ {problem}")

    def look_at(self, ref: SandboxRef, at_ns: int) -> None:
        """Go to a time in the log of a sandbox, once it is the selected one and its log is there."""
        self._wanted = (ref, at_ns)
        self._go_to_wanted()

    def _go_to_wanted(self) -> None:
        if self._wanted is None or self._shown != self._wanted[0] or not self.view.total:
            return
        _, at_ns = self._wanted
        self._wanted = None
        self.view.look_at(at_ns)

    def _note(self, text: str) -> None:
        if not text and self._feed is not None and self._feed.ended and not self.view.total:
            text = _NOTHING
        self._noted = text
        put_note(self, "#log-note", plain(text))
        self._tell_stand()

    def _tell_stand(self) -> None:
        if self._gone is not None:
            stand = StreamState("GONE", open=False)
        else:
            stream = self._merged or self._feed
            stand = FOLLOWED if stream is None else stream.stand
        self.view.note_stream(stand.words, open=stand.open)

    # --- several

    @property
    def merged(self) -> bool:
        """Whether the logs of several sandboxes are shown together."""
        return self._merged is not None

    @property
    def of_others(self) -> bool:
        """Whether the log shown is not the selected sandbox's: several, or one that is gone."""
        return self._merged is not None or self._gone is not None

    def merge(self, group: Group) -> None:
        """Show several sandboxes' output by time, until `unmerge` is called or another one is selected."""
        if self._sandbox is not None:
            self._leave(self._sandbox)
        self._merged = Merged(self._service, group, self.view, self._note)
        self._show_store(LineStore(self._cap), None, self._merged.names)
        self._begin()

    def unmerge(self) -> None:
        """Go back to the log of the selected sandbox alone."""
        self._stop()
        self._keep_gone()
        self._merged = self._gone = None
        if self._sandbox is not None:
            self._enter(self._sandbox)

    # --- removed sandboxes

    def _keep_gone(self) -> None:
        """Keep what a merged view read of a removed sandbox, if it has the newest lines."""
        for sandbox, store in self._merged.gone(self._live) if self._merged is not None else ():
            if (store.newest_ns or -1) > self._shelf.newest_ns(sandbox.ref):
                self._shelf.put(RecentLog(sandbox.ref, shown_name(sandbox), store, gone_at=self._clock()))

    def on_log_view_removed_logs_requested(self, event: LogView.RemovedLogsRequested) -> None:
        event.stop()
        if self._gone is not None:
            self.unmerge()
        else:
            self.run_worker(self._choose_gone(), group="gone", exclusive=True)

    async def _choose_gone(self) -> None:
        logs = await gone_logs(self._service, self._shelf)
        if not logs:
            none = "No sandbox that was looked at is gone. Their logs stay here for the session."
            self.notify("\n".join(filter(None, (none, self._service.retained.problem))))
            return
        self.app.push_screen(GoneScreen(logs, self._clock()), self._show_gone)

    def _show_gone(self, log: RecentLog | None) -> None:
        if log is not None:
            self.run_worker(self._open_gone(log), group="gone", exclusive=True)

    async def _open_gone(self, log: RecentLog) -> None:
        if not len(log.store):
            log.store.append(await self._service.retained.read(log.ref))
        if self._sandbox is not None:
            self._leave(self._sandbox)
        self._gone = log
        self._show_store(log.store, None)
        ago = span(self._clock() - (log.gone_at or self._clock()))
        back = hint(self, "logs-removed", "goes back.")
        self._note(f"{log.name} is gone since {ago}: what was read of its log. {back}".rstrip())

    # --- older lines

    def on_log_view_older_lines_requested(self, event: LogView.OlderLinesRequested) -> None:
        event.stop()
        if self._sandbox is not None and not self._elsewhere():
            work = self._older.page(self._sandbox, event.since_ns)
            self.run_worker(work, group="older", exclusive=True)

    def on_log_view_log_start_requested(self, event: LogView.LogStartRequested) -> None:
        event.stop()
        self._load_older_lines(to_start=True)

    def on_log_view_search_changed(self, event: LogView.SearchChanged) -> None:
        event.stop()
        self.workers.cancel_group(self, "older")
        self._older.show_progress("")
        if self.view.patterns != Patterns():
            self._load_older_lines(to_start=False)

    def _load_older_lines(self, *, to_start: bool) -> None:
        if self._sandbox is not None and not self._elsewhere():
            work = self._older.to_start if to_start else self._older.search
            self.run_worker(work(self._sandbox), group="older", exclusive=True)

    def _elsewhere(self) -> bool:
        """Return whether the log shown has no older lines to load, and say so."""
        if self._merged is not None:
            self._older.show_progress("older lines come in a sandbox's own log")
        elif self._gone is not None:
            self._older.show_progress("nothing older was read")
        return self.of_others

    # --- saving

    def on_log_view_save_requested(self, event: LogView.SaveRequested) -> None:
        event.stop()
        name = self._gone.name if self._gone else "merged" if self._merged else self._sandbox and self._sandbox.name
        if name:
            self.run_worker(self._save(name), group="save", exclusive=True)

    def _suggested(self, name: str) -> Path:
        """Return a local file, named without characters that are special to a file system or shell."""
        safe = "".join(char if char.isascii() and char.isalnum() else "-" for char in name)[:40]
        ref = self._sandbox.ref.id[:12] if self._sandbox and not self._merged and not self._gone else "logs"
        ref = "".join(char if char.isascii() and char.isalnum() else "-" for char in ref)
        return Path.cwd() / f"{safe}-{ref}-{datetime.now(UTC):%Y%m%d-%H%M%S}.log"

    async def _save(self, name: str) -> None:
        if refused_by_relay(self.app):
            return
        if downloads(self.app):
            lines, rest = self.view.shown, self._not_held(name)
            written = await send_parts(self.app, self._suggested(name).name, self.view.lines.raw())
            self.notify(f"{many(lines, 'line')}, {size(written)}, downloaded{rest}")
            return
        question = AskScreen("Save the log to (here)", "a file that is not there yet", str(self._suggested(name)))
        if not (typed := await self.app.push_screen_wait(question)):
            return
        path = Path(typed).expanduser().absolute()
        lines, rest = self.view.shown, self._not_held(name)
        try:
            written = await self.view.save(path, await self._service.ground())
        except OSError as error:
            self.notify(f"{path} cannot be written: {error.strerror}", title="save", severity="error")
        except ConsoleError as error:
            self.notify(error_words(error), title="save", severity="error")
        else:
            self.notify(f"{many(lines, 'line')}, {size(written)}, saved to {path}{rest}")

    def _not_held(self, name: str) -> str:
        """Return what a saved log does not contain."""
        store = self.view.store
        if store.begins or (len(store) < TAIL and not store.dropped):
            return ""
        if self._merged is not None or self._gone is not None:
            return f"\n{store.dropped:,} older lines are not in it." if store.dropped else ""
        return f"\nOlder lines are not in it; all: sandbox-console logs {shlex.quote(clean(name, cap=100))} > FILE"


def rules_of(config: Config) -> list[Rule]:
    """Return the config's highlight rules, compiled."""
    return [Rule(compile_pattern(rule.pattern).shown, rule.style) for rule in config.logs.highlight.values()]
