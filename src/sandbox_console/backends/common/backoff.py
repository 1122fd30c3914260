"""How long to wait before the next attempt to connect."""

from __future__ import annotations

import asyncio
import time

FIRST_S, MOST_S = 0.1, 2.0
"""An attempt costs a connection, and an engine that is back should be noticed within 5 s."""

LASTED_S = 5.0
"""A connection that lasted this long worked. A first event alone proves nothing."""


class Backoff:
    """Doubles the pause with each attempt; a connection that lasted resets it."""

    def __init__(self) -> None:
        self._pause = FIRST_S
        self._began = time.monotonic()

    def begin(self) -> None:
        """Note the beginning of an attempt."""
        self._began = time.monotonic()

    async def wait(self) -> None:
        """Wait before the next attempt, after one has ended."""
        if time.monotonic() - self._began > LASTED_S:
            self._pause = FIRST_S
        pause, self._pause = self._pause, min(self._pause * 2, MOST_S)
        await asyncio.sleep(pause)
