"""What pages and widgets can request from the app. They reach it with ``console_app = getters.app(BaseApp)``.

A user's requests go up as messages (`state.messages`). Only `BaseApp.agreed` is called directly, as it has an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from textual import events
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.reactive import reactive

from sandbox_console.model.action import Action
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Consent, Console
from sandbox_console.tui.base.plain_drags import PlainDrags
from sandbox_console.tui.base.touch import mark_touch
from sandbox_console.tui.base.type_ahead import TypeAheadApp
from sandbox_console.tui.keys.keymap import load
from sandbox_console.tui.state.fleet_state import FleetState


class BaseApp(TypeAheadApp[None]):
    """The current fleet, the console, the clock (Unix seconds) and the keys."""

    fleet: reactive[FleetState] = reactive(FleetState(), init=False, repaint=False)

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__()
        mark_touch(self)
        self.service = console
        self.now = clock
        self.keymap = load(console.config.tui)

    async def on_event(self, event: events.Event) -> None:
        """Deliver an event. The terminal's size is read now, as the size in the event may be old.

        Textual reads it when the signal comes. A second signal that interrupts it there posts its newer size first.
        """
        if isinstance(event, events.MouseDown | events.MouseUp) and self.is_web and not event.is_forwarded:
            self._drags.note(event)
        await super().on_event(self._latest(event) if isinstance(event, events.Resize) else event)

    @cached_property
    def _drags(self) -> PlainDrags:
        return PlainDrags(self)

    def _latest(self, event: events.Resize) -> events.Resize:
        driver = self._driver
        if not isinstance(driver, LinuxDriver) or driver._in_band_window_resize:  # noqa: SLF001 - has no public name
            return event
        size = Size(*driver._get_terminal_size())  # noqa: SLF001 - as above
        return events.Resize(size, size)

    @property
    def selected(self) -> Sandbox | None:
        """The sandbox under the cursor of the list."""
        raise NotImplementedError

    async def agreed(self, action: Action, sandbox: Sandbox) -> Consent | None:
        """Return the consent of a user who pressed an action's key, or None if they decline the policy's question."""
        raise NotImplementedError
