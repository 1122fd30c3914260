"""What pages and widgets can request from the app. They reach it with ``console_app = getters.app(BaseApp)``.

A user's requests go up as messages (`state.messages`). Only `BaseApp.agreed` is called directly, as it has an answer.
"""

from __future__ import annotations

from collections.abc import Callable

from textual.reactive import reactive

from sandbox_console.model.action import Action
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Consent, Console
from sandbox_console.tui.base.type_ahead import TypeAheadApp
from sandbox_console.tui.keys.keymap import load
from sandbox_console.tui.state.fleet_state import FleetState


class BaseApp(TypeAheadApp[None]):
    """The current fleet, the console, the clock (Unix seconds) and the keys."""

    fleet: reactive[FleetState] = reactive(FleetState(), init=False, repaint=False)

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__()
        self.service = console
        self.now = clock
        self.keymap = load(console.config.tui)

    @property
    def selected(self) -> Sandbox | None:
        """The sandbox under the cursor of the list."""
        raise NotImplementedError

    async def agreed(self, action: Action, sandbox: Sandbox) -> Consent | None:
        """Return the consent of a user who pressed an action's key, or None if they decline the policy's question."""
        raise NotImplementedError
