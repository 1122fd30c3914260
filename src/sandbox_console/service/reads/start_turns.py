"""Lets hosts connect in turn at the start, so that the first have their lists while the others still connect.

100 hosts that connect at once share the processor, so that none has a list before all do; on a busy machine all of them
would exceed the time that a host may take to answer, again and again.
"""

from __future__ import annotations

import asyncio

AT_ONCE = 8
WAITED_S = 0.15
"""A host that has not answered within this time waits for its network, so the next one begins."""


class StartTurns:
    """Gives turns in the order in which they are requested. While ``held``, only the first ``at_once`` are given."""

    def __init__(self, at_once: int = AT_ONCE, waited_s: float = WAITED_S, *, held: bool = False) -> None:
        self._free, self._waited_s = asyncio.Semaphore(at_once), waited_s
        self._held, self._ended = held, 0

    async def take(self) -> Turn:
        """Wait for a turn."""
        await self._free.acquire()
        return Turn(self, self._waited_s)

    def go_on(self) -> None:
        """Give the other turns, too."""
        self._held = False
        while self._ended:
            self._ended -= 1
            self._free.release()

    def ended(self) -> None:
        """Note that a turn has ended."""
        self._ended += 1
        if not self._held:
            self.go_on()


class Turn:
    """A host's turn. It ends when :meth:`end` is first called, or after ``seconds``."""

    def __init__(self, turns: StartTurns, seconds: float) -> None:
        self._turns: StartTurns | None = turns
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Let the next host begin."""
        turns, self._turns = self._turns, None
        if turns is not None:
            self._timer.cancel()
            turns.ended()
