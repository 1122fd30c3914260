"""Sends an engine the latest size of a terminal, and tries again if the engine does not answer at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sandbox_console.backends.docker.failures import Refused
from sandbox_console.errors import BackendUnreachable

AGAIN_S = 0.5
"""The pause before the size is sent again to an engine that did not answer."""

WAIT_S = 1.0
"""How long a caller waits for the engine. What is typed next should come after the new size."""


class LatestSize:
    """Tells sizes one at a time. Sizes wanted in between are skipped. Call ``stop`` when the terminal ends."""

    def __init__(self, tell: Callable[[int, int], Awaitable[object]]) -> None:
        self._tell = tell
        self._wanted: tuple[int, int] | None = None
        self._telling: asyncio.Task[None] | None = None

    async def want(self, cols: int, rows: int) -> None:
        """Send a size. Returns when the engine has it or does not answer; in that case it is sent later."""
        self._wanted = (cols, rows)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_all())
            await asyncio.wait({self._telling}, timeout=WAIT_S)

    def stop(self) -> None:
        """Tell nothing more."""
        if self._telling is not None:
            self._telling.cancel()

    async def _tell_all(self) -> None:
        while (size := self._wanted) is not None:
            try:
                with suppress(Refused):  # the process does not exist any more
                    await self._tell(*size)
            except BackendUnreachable:
                await asyncio.sleep(AGAIN_S)
                continue
            if self._wanted == size:
                self._wanted = None
