"""How long to wait before the next try to connect."""

from __future__ import annotations

import asyncio
import time

FIRST_S, MOST_S = 0.1, 2.0
"""A try costs one connect() on a socket, and an engine that is back is to be seen within 5 s."""

LASTED_S = 5.0
"""A connection that held for so long was a good one. A first event alone proves nothing."""


class Backoff:
    """Doubles the pause from try to try; a connection that lasted starts it again."""

    def __init__(self) -> None:
        self._pause = FIRST_S
        self._began = time.monotonic()

    def begin(self) -> None:
        """A try begins now."""
        self._began = time.monotonic()

    async def wait(self) -> None:
        """The try has ended: wait before the next."""
        if time.monotonic() - self._began > LASTED_S:
            self._pause = FIRST_S
        pause, self._pause = self._pause, min(self._pause * 2, MOST_S)
        await asyncio.sleep(pause)
