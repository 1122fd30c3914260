"""Ships the audit log in the background while a console is open."""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from sandbox_console.errors import AuditUnavailable, ConsoleError
from sandbox_console.service.gate.audit_log import AuditLog

_LONGEST_S = 300.0
"""The longest pause between two attempts while the server is away. The pause grows up to this."""


class Shipping(Struct):
    """The progress. ``sent`` counts the rows that this process sent; ``at`` is when all rows had last arrived."""

    sent: int = 0
    at: float | None = None
    problem: str = ""


class Shipper:
    """Looks for new rows every ``audit.ship.interval_s`` seconds. Does nothing if no server is configured."""

    def __init__(self, audit_log: AuditLog) -> None:
        self._audit_log = audit_log
        self._task: asyncio.Task[None] | None = None
        self.state = Shipping()

    def start(self) -> None:
        """Start shipping. A second call does nothing."""
        if self._task is None and self._audit_log.ships:
            self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop shipping. Rows that were not sent yet stay in the log for the next shipper."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        usual = self._audit_log.options.ship.interval_s
        wait = usual
        while True:
            wait = usual if await self._once() else min(_LONGEST_S, max(1.0, 2 * wait))
            await asyncio.sleep(wait)

    async def _once(self) -> bool:
        try:
            self.state.sent += await self._audit_log.ship()
        except AuditUnavailable as error:
            self.state.problem = error.message  # usually another console is shipping: try at the usual time
            return True
        except ConsoleError as error:
            self.state.problem = error.message
            return False
        self.state.at, self.state.problem = time.time(), ""
        return True
