"""What pages and widgets may ask of the app. They reach it by ``console_app = getters.app(BaseApp)``.

What a person wants done goes up as a message (`state.messages`); `BaseApp.agreed` alone is called, for its answer.
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
    """The fleet as it is now, the console, the clock (Unix seconds) and the keys."""

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
        """What a person agrees to who asked for an action by a key; None where the policy asks and they say no."""
        raise NotImplementedError
