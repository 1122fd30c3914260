"""Follows the alerts of the state folder, and runs the rules while no other process does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from sandbox_console.errors import ConsoleError
from sandbox_console.model.access import access
from sandbox_console.model.alert import Alert, AlertState
from sandbox_console.service import Console
from sandbox_console.service.alerts.alerts import AlertBook
from sandbox_console.service.alerts.watch import watch
from sandbox_console.tui.state.fleet_state import AlertsSeen

LOOK_S = 1.0
AGAIN_S = 10.0

Fired = Callable[[Sequence[Alert]], object]
Publish = Callable[[AlertsSeen], object]


class AlertWatch:
    """Follows the alerts. ``fired`` is called with those that begin to fire while the app is open and are not silenced.

    ``publish`` is called with all that fire, and with what keeps the rules from running, each time that it changes.
    ``write`` writes to the terminal, for channels of the desktop.
    """

    def __init__(
        self, console: Console, publish: Publish, fired: Fired, write: Callable[[str], object] | None = None
    ) -> None:  # fmt: skip
        self._console = console
        self._publish, self._fired, self._write = publish, fired, write
        self._firing: dict[str, Alert] = {}
        self._problem = ""
        self._shown: AlertsSeen | None = None

    async def run(self) -> None:
        """Go on until cancelled. A read-only console only looks."""
        runs = bool(self._console.config.alerts.rules) and not self._console.read_only and not access().labels
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            if runs:
                group.create_task(self._run_rules())

    async def _run_rules(self) -> None:
        while True:
            try:
                await watch(self._console, problem=self._note, write=self._write)
            except ConsoleError as error:
                self._note(error.message)
            await asyncio.sleep(AGAIN_S)

    def _note(self, problem: str) -> None:
        # That another process runs the rules is how it should be.
        self._problem = "" if "runs the rules" in problem else problem

    async def _follow(self) -> None:
        with closing(AlertBook(self._console)) as book:
            number, first = 0, True
            while True:
                with suppress(ConsoleError):  # the process that runs the rules says why they cannot be read
                    number, changed = await book.changed_since(number)
                    self._take(changed, new=not first)
                    first = False
                await asyncio.sleep(LOOK_S)

    def _take(self, changed: Sequence[Alert], *, new: bool) -> None:
        begun = []
        for alert in changed:
            if alert.state is AlertState.FIRING:
                begun += [alert] if alert.id not in self._firing and not alert.silenced else []
                self._firing[alert.id] = alert
            else:
                self._firing.pop(alert.id, None)
        seen = AlertsSeen(tuple(self._firing.values()), self._problem)
        if seen != self._shown:
            self._shown = seen
            self._publish(seen)
        if begun and new:
            self._fired(begun)
