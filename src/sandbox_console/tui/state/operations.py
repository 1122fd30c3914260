"""Follows actions in flight for the app. The console owns them, so closing a screen cancels none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import convert, structs, to_builtins

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action, Quarantine, ref_of
from sandbox_console.model.quarantine import Step
from sandbox_console.service import ActionResult, Consent, Console, Operation
from sandbox_console.tui.state.fleet_state import Ended, InFlight, News


class OnEnd(Protocol):
    """Called with the result or the error of an action when it ends. ``told``: a page already shows the error."""

    def __call__(
        self, action: Action, name: str, result: ActionResult | None, error: ConsoleError | None, *, told: bool
    ) -> None: ...


class Publish(Protocol):
    """Accepts news. Several items passed together are drawn once."""

    def __call__(self, *news: News) -> None: ...


GATHER_S = 0.05
"""Seconds to gather news of actions: drawing a list of thousands for each one would take longer than the actions."""


class Work:
    """Starts actions, publishes when they begin and end, and counts those in flight."""

    def __init__(self, console: Console, publish: Publish, on_end: OnEnd) -> None:
        self._console = console
        self._publish = publish
        self._on_end = on_end
        self._tasks: set[asyncio.Task[None]] = set()
        self._carried = 0
        self._gathered: list[News] = []

    @property
    def in_flight(self) -> int:
        """The number of actions that have not ended."""
        return len(self._tasks) + self._carried

    async def carry(self, action: Action, consent: Consent) -> ActionResult:
        """Submit an action to the console and wait for it. Reports its result only to the caller. Raises its error."""
        operation = self._console.perform(action, consent=consent)
        ref = ref_of(action)
        self._carried += 1
        if ref is not None:
            self._gather(InFlight(ref, action.verb))
        try:
            return await self._kept(action, consent, await operation.result())
        finally:
            self._carried -= 1
            if ref is not None:
                self._gather(Ended(ref))

    def _gather(self, news: News) -> None:
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHER_S, self._tell)
        self._gathered.append(news)

    def _tell(self) -> None:
        news, self._gathered = self._gathered, []
        self._publish(*news)

    def start(self, action: Action, consent: Consent, name: str, told: Callable[[], bool] = lambda: False) -> Operation:
        """Submit an action to the console. ``name`` is the name of its sandbox for the message when it has ended.

        ``told`` says whether a page shows the error by itself, if there is one.
        """
        operation = self._console.perform(action, consent=consent)
        ref = ref_of(action)
        if ref is not None:
            self._publish(InFlight(ref, action.verb))
        task = asyncio.create_task(self._follow(operation, consent, name, told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return operation

    async def _kept(self, action: Action, consent: Consent, result: ActionResult) -> ActionResult:
        """Return the result of a quarantine with the evidence kept after it, and any other result unchanged."""
        if not isinstance(action, Quarantine):
            return result
        from sandbox_console.service.incident.quarantine import keep_evidence

        steps = [*_steps(result), *await keep_evidence(self._console, action.ref, consent)]
        return structs.replace(result, details={**result.details, "steps": to_builtins(steps)})

    async def _follow(self, operation: Operation, consent: Consent, name: str, told: Callable[[], bool]) -> None:
        result: ActionResult | None = None
        problem: ConsoleError | None = None
        try:
            result = await self._kept(operation.action, consent, await operation.result())
        except ConsoleError as error:
            problem = error
        finally:
            if (ref := ref_of(operation.action)) is not None:
                self._publish(Ended(ref))
        self._on_end(operation.action, name, result, problem, told=told())

    async def close(self) -> None:
        """Stop following. The console ends the actions."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _steps(result: ActionResult) -> list[Step]:
    return convert(result.details.get("steps", []), list[Step])
