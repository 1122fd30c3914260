"""Makes refused callers wait, one after the other, so that a caller in a loop costs the others little."""

from __future__ import annotations

import asyncio
from collections import Counter

REFUSAL_S = 1.0
"""Seconds that a refused caller waits for the answer at least."""
APART_S = 0.125
"""Seconds between the answers to two refusals of one caller, however many connections it has."""


class RefusalDelay:
    """The waits of refused callers, by whatever identifies them: a token, or a user of this machine."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    async def refused(self, who: str) -> None:
        """Wait for the time when a refusal may be sent. A caller who goes away leaves the queue."""
        turn = self._turns.setdefault(who, asyncio.Lock())
        self._waiting[who] += 1
        try:
            await asyncio.sleep(REFUSAL_S - APART_S)
            async with turn:
                await asyncio.sleep(APART_S)
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who], self._turns[who]
