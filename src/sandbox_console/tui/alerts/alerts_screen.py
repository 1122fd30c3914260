"""The page of alerts: which fire, which are over, what is silenced, and which messages have not arrived."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import ClassVar

from msgspec import Struct
from textual import getters
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.alert import Alert, AlertState, Delivery
from sandbox_console.model.quantities import parse_duration_s
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.service.alerts.alerts import AlertBook
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.state.messages import CauseRequested
from sandbox_console.tui.text.formatting import error_words, span
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

LOOK_S = 1.0
LONGEST_S = 31 * 86400.0
_USUAL = "2h"
_NOTED = 3
COLUMNS = (
    Column("state", "STATE", 10, 10, priority=0),
    Column("severity", "SEVERITY", 8, 8, priority=3),
    Column("rule", "RULE", 8, 20, priority=1),
    Column("name", "SANDBOX", 10, 28, priority=0),
    Column("since", "SINCE", 6, 8, align="right", priority=2),
    Column("count", "TIMES", 5, 6, align="right", priority=4),
    Column("text", "TEXT", 20, 300, priority=0, flex=True),
)


class Inbox(Struct, frozen=True):
    """What the page shows. ``watcher`` is the process that runs the rules; empty if none does."""

    alerts: Sequence[Alert] = ()
    waiting: Sequence[Delivery] = ()
    watcher: str = ""


class AlertsScreen(Screen[SandboxRef | None]):
    """Returns the sandbox to go to, or None."""

    DEFAULT_CSS = """
    AlertsScreen { background: $background; }
    AlertsScreen > #alerts-title {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    AlertsScreen > .alerts-note { height: auto; max-height: 4; padding: 0 1; display: none; }
    AlertsScreen > .-on { display: block; }
    AlertsScreen > #alerts-problem { color: $text-error; }
    AlertsScreen > #alerts-outbox { color: $text-warning; }
    AlertsScreen > #alerts-empty { padding: 1 2; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["alerts"]

    console_app = getters.app(BaseApp)

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__()
        self._service = console
        self._clock = clock
        self._book = AlertBook(console, clock)
        self._inbox: Inbox | None = None
        self._drawn: tuple[object, ...] = ()
        self._all = False

    def compose(self) -> ComposeResult:
        yield Static(id="alerts-title", markup=False)
        yield Static(id="alerts-problem", classes="alerts-note", markup=False)
        yield Static(id="alerts-outbox", classes="alerts-note", markup=False)
        yield FleetTable(COLUMNS, id="alerts-rows")
        yield Static(id="alerts-empty", classes="alerts-note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.set_interval(LOOK_S, self._look_soon)
        self._look_soon()

    def on_unmount(self) -> None:
        self._book.close()

    # --- reading and drawing

    def _look_soon(self) -> None:
        if not any(worker.group == "alerts-look" and not worker.is_finished for worker in self.workers):
            self.run_worker(self._look(), group="alerts-look")

    async def _look(self) -> None:
        problem = self.console_app.fleet.alerts.problem
        try:
            book = self._book
            self._inbox = Inbox(await book.alerts(resolved=self._all), await book.waiting(), await book.watcher())
        except ConsoleError as error:
            problem = error_words(error)
        put_note(self, "#alerts-problem", plain(f"✕ {problem}" if problem else ""))
        self._draw()

    def _draw(self) -> None:
        if self._inbox is None:
            return
        inbox, now = self._inbox, self._clock()
        drawn = (inbox, int(now))
        if drawn != self._drawn:
            self._drawn = drawn
            for table in self.query(FleetTable):
                table.set_rows([_row(alert, now) for alert in inbox.alerts])
        put(self, "#alerts-title", self._title(inbox))
        put_note(self, "#alerts-outbox", plain(outbox_words(inbox.waiting, now)))
        put_note(self, "#alerts-empty", plain("" if inbox.alerts else self._why_empty()))

    def _title(self, inbox: Inbox) -> Content:
        firing = [alert for alert in inbox.alerts if alert.state is AlertState.FIRING]
        silenced = sum(alert.silenced for alert in firing)
        words = [
            ("Alerts", "bold $primary"),
            (f"  {len(firing)} firing", "$text-error" if firing else "$dim"),
        ]
        words += [(f"  {silenced} silenced", "$dim")] if silenced else []
        words += [(f"  {len(inbox.alerts) - len(firing)} resolved", "$dim")] if self._all else []
        return Content.assemble(*words, (f"  {self._who(inbox.watcher)}", "$dim" if inbox.watcher else "$text-warning"))

    def _who(self, watcher: str) -> str:
        if not self._service.config.alerts.rules:
            return "no rules are configured"
        if watcher == str(os.getpid()):
            return "this console is running the rules"
        return f"process {clean(watcher, cap=20)} runs the rules" if watcher else "no process is running the rules"

    def _why_empty(self) -> str:
        if not self._service.config.alerts.rules:
            return "No rules: add [alerts.rules.NAME] to the configuration (docs/alerts.md), then restart the console."
        return (
            "Nothing has fired yet."
            if self._all
            else f"Nothing is firing. {hint(self, 'alerts-resolved', 'shows resolved alerts.')}"
        )

    # --- keys

    @property
    def _alert(self) -> Alert | None:
        """The alert under the cursor."""
        key = self.query_one(FleetTable).cursor_key
        return next((alert for alert in self._inbox.alerts if alert.id == key), None) if self._inbox else None

    def action_resolved(self) -> None:
        """Show also alerts that are over, or only those that fire."""
        self._all = not self._all
        self.run_worker(self._look(), group="alerts-look", exclusive=True)

    def action_silence(self) -> None:
        """Turn off the messages of the alert under the cursor, or turn them on again."""
        alert = self._alert
        if alert is None:
            self.notify("There is no alert to silence.", severity="warning")
        elif alert.silenced:
            self._change(self._end_silence(alert))
        else:
            title, help_text = (
                f"Silence {alert.rule} for {alert.name}",
                "No messages for this long, such as 30m, 2h or 1d.",
            )
            ask = AskScreen(title, "2h", _USUAL, help_text=f"{help_text} The alert stays in the list.")
            self.app.push_screen(ask, partial(self._asked, alert))

    def _asked(self, alert: Alert, text: str | None) -> None:
        if not text:
            return
        try:
            seconds = parse_duration_s(text)
        except ValueError as error:
            self.notify(str(error), title="silence", severity="error")
            return
        if not 0 < seconds <= LONGEST_S:
            self.notify("A silence lasts up to 31 days.", title="silence", severity="error")
            return
        self._change(self._silence(alert, seconds))

    async def _silence(self, alert: Alert, seconds: float) -> None:
        silence = await self._book.silence_alert(alert, seconds)
        self.notify(f"No messages of {alert.rule} about {alert.name} for {span(silence.until - self._clock())}.")

    async def _end_silence(self, alert: Alert) -> None:
        left = await self._book.end_silence_of(alert)
        if left:
            ids = ", ".join(
                f"{silence.id} (rule {clean(silence.rule, cap=40)}, sandbox {clean(silence.sandbox, cap=40)})"
                for silence in left
            )
            hint = f"sandbox-console alerts silence --undo {left[0].id}"
            self.notify(f"It is still covered by silence {ids}. To end it: {hint}", severity="warning", timeout=15)
        else:
            self.notify(f"Messages of {alert.rule} about {alert.name} are sent again.")

    def action_test(self) -> None:
        """Send a message over every channel."""
        channels = list(self._service.config.alerts.channels)
        if not channels:
            self.notify("There is no channel: add [alerts.channels.NAME] to the configuration.", severity="warning")
        for channel in channels:
            self._change(self._test(channel))

    async def _test(self, channel: str) -> None:
        await self._book.test(channel)
        self.notify(f"{channel}: the message has arrived.")

    def _change(self, work: Coroutine[None, None, None]) -> None:
        self.run_worker(self._told(work), group="alerts-change")

    async def _told(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except ConsoleError as error:
            self.notify(error_words(error, apart=True), title="alerts", severity="error", timeout=10)
        await self._look()

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        self.action_go()

    def action_go(self) -> None:
        """Go to the sandbox of the alert under the cursor."""
        if (ref := subject_ref(self._alert)) is None:
            self._no_sandbox()
        else:
            self.dismiss(ref)

    def action_why(self) -> None:
        """Show why the sandbox of the alert under the cursor ended."""
        ref = subject_ref(self._alert)
        sandbox = self.console_app.fleet.sandboxes.get(ref) if ref else None
        if sandbox is None:
            self._no_sandbox()
        else:
            self.post_message(CauseRequested(sandbox))

    def _no_sandbox(self) -> None:
        if self._alert is None:
            text = "There is no alert."
        elif subject_ref(self._alert) is None:
            text = "This alert is not about a sandbox."
        else:
            text = "Its sandbox no longer exists."
        self.notify(text, severity="warning")


def subject_ref(alert: Alert | None) -> SandboxRef | None:
    """The sandbox that an alert is about, or None."""
    parts = alert.subject.split("/", 2) if alert else []
    return SandboxRef(*parts) if len(parts) == 3 else None


def _row(alert: Alert, now: float) -> Row:
    over = alert.state is AlertState.RESOLVED
    state = "● over" if over else "⊘ silenced" if alert.silenced else "▲ firing"
    style = "dim" if over or alert.silenced else "error" if alert.severity == "critical" else "warn"
    since = span(now - (alert.fired_at or alert.since))
    cells = (state, alert.severity, clean(alert.rule, cap=60), clean(alert.name, cap=100), since, str(alert.count),
             clean(alert.text, cap=300))  # fmt: skip
    return Row(alert.id, cells, (style, style, "", "", "dim", "dim", "dim" if over else ""))


def outbox_words(waiting: Sequence[Delivery], now: float) -> str:
    """Which messages have not arrived: by channel, how many, why, and when the next is tried."""
    by_channel: dict[str, list[Delivery]] = {}
    for delivery in waiting:
        by_channel.setdefault(delivery.channel, []).append(delivery)
    lines = [_channel_words(name, deliveries, now) for name, deliveries in by_channel.items()]
    return "\n".join(lines[:_NOTED]) + (f"\n… and {len(lines) - _NOTED} more channels" if len(lines) > _NOTED else "")


def _channel_words(name: str, deliveries: Sequence[Delivery], now: float) -> str:
    first = min(deliveries, key=lambda delivery: delivery.next_at)
    many = "1 message has" if len(deliveries) == 1 else f"{len(deliveries)} messages have"
    reason = f": {clean(first.error, cap=160)}" if first.error else ""
    again = f"; tried again in {span(first.next_at - now)}" if first.next_at > now else "; on its way"
    return f"✉ {clean(name, cap=40)}: {many} not arrived{reason}{again}"
