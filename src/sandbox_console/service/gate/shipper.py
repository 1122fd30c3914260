"""Ships the audit log in the background while a console is open."""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from sandbox_console.errors import AuditUnavailable, ConsoleError
from sandbox_console.service.gate.trail import Trail

_LONGEST_S = 300.0
"""A server that is away is asked for ever more seldom, up to this."""


class Shipping(Struct):
    """How it goes. ``sent`` counts this process's rows; ``at`` is the last time that all were there."""

    sent: int = 0
    at: float | None = None
    problem: str = ""


class Shipper:
    """Asks for new rows every ``audit.ship.interval_s`` seconds; does nothing where no server is configured."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._task: asyncio.Task[None] | None = None
        self.state = Shipping()

    def start(self) -> None:
        """Begin; a second call changes nothing."""
        if self._task is None and self._trail.ships:
            self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """End; what was not sent yet stays in the log for the next one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        usual = self._trail.options.ship.interval_s
        wait = usual
        while True:
            wait = usual if await self._once() else min(_LONGEST_S, max(1.0, 2 * wait))
            await asyncio.sleep(wait)

    async def _once(self) -> bool:
        try:
            self.state.sent += await self._trail.ship()
        except AuditUnavailable as error:
            self.state.problem = error.message  # another console ships it, mostly: asked again at the usual time
            return True
        except ConsoleError as error:
            self.state.problem = error.message
            return False
        self.state.at, self.state.problem = time.time(), ""
        return True
