"""The app. It holds the state and the parts, and routes messages between them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.content import Content
from textual.geometry import Size
from textual.notifications import SeverityLevel
from textual.screen import Screen

from sandbox_console.errors import ConsoleError
from sandbox_console.hostfs import own_files
from sandbox_console.model.action import Action, Update, ref_of
from sandbox_console.model.event import ConfigChanged
from sandbox_console.service import ActionResult, Console
from sandbox_console.tui.actions.outcome import ended_words
from sandbox_console.tui.app_parts import LoggedMessage
from sandbox_console.tui.base.themes import DARK, LIGHT, THEMES, after
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.text_screen import TooSmallScreen, too_small
from sandbox_console.tui.egress import egress_text
from sandbox_console.tui.keys.keymap import key_of
from sandbox_console.tui.main.main_screen import MainScreen
from sandbox_console.tui.pages import PageActions
from sandbox_console.tui.pulse.history import History
from sandbox_console.tui.shell.shell import ShellRequested
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.state.messages import (
    ActionRequested,
    Arrived,
    AttachRequested,
    BulkRequested,
    CauseRequested,
    ChangesRequested,
    DraftRequested,
    EditSeveralRequested,
    EgressRequested,
    FormRequested,
    FormSourceRequested,
    ForwardRequested,
    RecordingsRequested,
    ShellsRequested,
    TemplateRequested,
    TimelineRequested,
    VerbInputRequested,
    bridge,
)
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.state.reducer import reduce
from sandbox_console.tui.text.formatting import error_words

SMALLEST = (40, 15)
MESSAGES_KEPT = 500
ALERTS_AFTER_S = 1.0
"""Seconds after which the alerts are followed: not while the first page is drawn."""


def _commands() -> type[Provider]:
    from sandbox_console.tui.palette import ConsoleCommands

    return ConsoleCommands


class ConsoleApp(PageActions):
    """The console in a terminal, or in a browser through textual-serve."""

    TITLE = "sandbox-console"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f1", "help", "Help", show=False)]  # where ? is a letter
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_commands}

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(console, clock)
        self.set_keymap(self.keymap.changed)
        self.work = Work(console, self.publish, self._ended)
        self.history = History()
        self.main = MainScreen(console, self.publish, clock)
        self.message_log: deque[LoggedMessage] = deque(maxlen=MESSAGES_KEPT)
        self._bridge: asyncio.Task[None] | None = None
        self._alerts: asyncio.Task[None] | None = None

    async def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self._choose_theme(self.service.config.tui.theme)
        self.call_next(self._open)  # after the theme has restyled the app, so that the list is styled only once

    async def _open(self) -> None:
        self.main.fit(self.size)
        await self.push_screen(self.main)
        self._cover(self.size)
        self.set_interval(self.service.config.tui.stats_interval_s, self._keep_up)
        self._tell_damage()
        deliver = lambda found: self.post_message(Arrived(found))  # noqa: E731
        self._bridge = asyncio.create_task(bridge(self.service.watch(), deliver))
        self._bridge.add_done_callback(self._bridge_ended)
        if self.is_web:
            self.run_worker(self.shells.offer_kept())
        if self.service.config.alerts.rules:
            self.set_timer(ALERTS_AFTER_S, self._watch_alerts)

    def _keep_up(self) -> None:
        self.history.note(self.fleet)
        self._tell_damage()
        if self.is_web:
            self.tell_faults()

    def _tell_damage(self) -> None:
        for text in own_files.told():
            self.notify(text, title="damaged file", severity="warning", timeout=30, markup=False)

    def _watch_alerts(self) -> None:
        self._alerts = asyncio.create_task(self.alert_watch().run())
        self._alerts.add_done_callback(self._bridge_ended)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Define ``$dim`` for third-party themes: muted text that does not depend on the background."""
        return {"dim": "#8b95a5"}

    def _choose_theme(self, name: str) -> None:
        if name not in self.available_themes:
            self.notify(f"There is no theme {name!r}; {DARK.name} is used.", severity="warning")
            name = DARK.name
        self.theme = name

    def _bridge_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._handle_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def on_unmount(self) -> None:
        for task in filter(None, (self._bridge, self._alerts)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if "forwards" in self.__dict__:  # otherwise none has been requested
            await self.forwards.close()
        await self.bulk.close()
        await self.work.close()

    # --- down: from events to the state, and from the state to the screen

    def on_arrived(self, message: Arrived) -> None:
        before, state = self.fleet, reduce(self.fleet, message.events)
        self.fleet = state
        if state.config is not before.config:  # it may be equal, if the same parts were changed again
            self._tell_config(state.config)

    def watch_fleet(self, state: FleetState) -> None:
        self.main.show(state)

    def _tell_config(self, config: ConfigChanged) -> None:
        if config.own and not config.later:
            return  # the user sees what they changed
        if config.problem:
            text = f"{config.problem}. The previous one stays in force."
            self.notify(text, title="configuration", severity="error", timeout=15)
        elif config.now or config.later:
            later = f"Applied at the next start: {', '.join(config.later)}." if config.later else ""
            now = f"Applied now: {', '.join(config.now)}." if config.now else ""
            self.notify(" ".join(filter(None, (now, later))), title="configuration reloaded")
        else:
            self.notify("It is valid again, and nothing has changed.", title="configuration")

    # --- up: from requests to the console

    def on_action_requested(self, message: ActionRequested) -> None:
        self.run_worker(self.flows.act(message.action, message.sandbox))

    def on_bulk_requested(self, message: BulkRequested) -> None:
        self.run_worker(self.bulk.ask(message))

    def on_shell_requested(self, message: ShellRequested) -> None:
        self.run_worker(self.shells.shell(message, self.main.detail.shells.open), keys_wait=False)

    def on_shells_requested(self, message: ShellsRequested) -> None:
        self.run_worker(self.shells.page(message.sandboxes, self.main.detail.shells, choose=message.choose))

    def on_egress_requested(self, message: EgressRequested) -> None:
        self.run_worker(self.egress.ask(message))

    def on_draft_requested(self, message: DraftRequested) -> None:
        self.egress.draft(message.sandboxes)

    def on_cause_requested(self, message: CauseRequested) -> None:
        self.open_why(message.sandbox)

    def on_timeline_requested(self, message: TimelineRequested) -> None:
        self.open_timeline(message.sandboxes)

    def on_recordings_requested(self, message: RecordingsRequested) -> None:
        self.open_recordings(message.sandbox)

    def on_form_requested(self, message: FormRequested) -> None:
        self.run_worker(self.open_form(message.sandbox))

    def on_edit_several_requested(self, message: EditSeveralRequested) -> None:
        self.run_worker(self.open_form_of(message.sandboxes, message.hidden))

    def on_form_source_requested(self, _: FormSourceRequested) -> None:
        self.run_worker(self.open_form_from())

    def on_template_requested(self, message: TemplateRequested) -> None:
        self.run_worker(self.templates.save(message.sandbox))

    def on_verb_input_requested(self, message: VerbInputRequested) -> None:
        self.run_worker(self.flows.named(message.naming, message.sandbox))

    def on_attach_requested(self, message: AttachRequested) -> None:
        self.run_worker(self.shells.attach(message.sandbox))

    def on_forward_requested(self, message: ForwardRequested) -> None:
        self.run_worker(self.forwards.ask(message.sandbox))

    def on_changes_requested(self, message: ChangesRequested) -> None:
        self.run_worker(self.flows.changes(message.sandbox))

    def _ended(
        self, action: Action, name: str, result: ActionResult | None, error: ConsoleError | None, *, told: bool
    ) -> None:
        if error is not None:
            row = f" (audit row {error.audit_id})" if error.audit_id else ""
            text, title = f"{error_words(error, apart=True)}{row}", f"{action.verb} {name}"
            if told:
                self._keep_message(text, title, "error")
            else:
                self.notify(text, title=title, severity="error", timeout=10)
        elif result is not None and (message_log := egress_text.ended(action, name, result)) is not None:
            text, good = message_log
            self.notify(text, severity="information" if good else "warning", timeout=None if good else 15)
        elif result is not None:
            self.notify(ended_words(action, name, result))
            if result.ref is not None and result.ref != ref_of(action):
                self.main.select_new(result.ref, in_place=isinstance(action, Update))

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a message for a while, and keep it for the messages page."""
        self._keep_message(message, title, severity)
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def _keep_message(self, message: str, title: str, severity: SeverityLevel) -> None:
        self.message_log.append((self.now(), severity, f"{title}: {message}" if title else message))

    def action_next_theme(self) -> None:
        """Switch to the next theme."""
        self.theme = after(self.theme).name

    def action_use_theme(self, name: str) -> None:
        """Switch to another theme."""
        self._choose_theme(name)

    def action_light(self) -> None:
        """Switch between dark and light."""
        self.theme = LIGHT.name if self.current_theme.dark else DARK.name

    def action_help_quit(self) -> None:
        """Show how to quit, as Ctrl+C does not. Textual's own message has markup, which is never parsed here."""
        if key := key_of(self.screen, "quit"):
            self.notify(f"{key} quits.", title="Ctrl+C does not quit")

    async def action_quit(self) -> None:
        """Quit. Requests confirmation first if quitting would end something."""
        flying, shells = self.work.in_flight, self.main.detail.shells.open_count
        forwards = self.forwards.count if "forwards" in self.__dict__ else 0
        if not flying and not shells and not forwards:
            self.exit()
            return
        lines = [f"{_counted(flying, 'action')} in flight: cancelled, and recorded as cancelled."] if flying else []
        lines += [f"{_counted(shells, 'open shell')}: ended."] if shells else []
        lines += [f"{_counted(forwards, 'forwarded port')}: ended."] if forwards else []
        body = Content("\n".join([*lines, *self.bulk.leaving(), "Sandboxes keep running."]))
        leave = lambda yes: self.exit(message=self.bulk.leave() or None) if yes else None  # noqa: E731
        self.push_screen(ConfirmScreen("Quit?", body, "Quit"), leave)

    def on_resize(self, event: events.Resize) -> None:
        if self.main in self.screen_stack:  # otherwise the question would appear under this one when the app opens
            self._cover(event.size)

    @property
    def _background_screens(self) -> list[Screen[Any]]:
        """The screens that are drawn below the top one. There are none below the "terminal too small" screen.

        In a few cells, two scroll bars can take the space from each other in an endless loop at full speed.
        """
        if self._screen_stack and isinstance(self._screen_stack[-1], TooSmallScreen):
            return []
        return super()._background_screens

    def _cover(self, size: Size) -> None:
        small = too_small(size, SMALLEST)
        covered = isinstance(self.screen, TooSmallScreen)
        if small and not covered:
            self.push_screen(TooSmallScreen(SMALLEST))
        elif covered and not small:
            self.pop_screen()


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
