"""Merges the output of several sandboxes, which arrives sandbox by sandbox, in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby

from sandbox_console.model.log import LogItem

HOLD_S = 0.25
"""How long an item waits for earlier ones of other sandboxes."""


class Merger:
    """Holds items for a moment and returns them in order of time. Within one source their order is kept.

    An item that is more than ``hold_s`` late is still returned, with its own time: nothing is lost for the sake of
    order.
    """

    def __init__(self, hold_s: float = HOLD_S) -> None:
        self.hold_s = hold_s
        self._heap: list[tuple[int, int, float, int, LogItem]] = []
        self._count = 0
        self._newest: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, source: int, items: Sequence[LogItem], now_s: float) -> None:
        """Add items that a source wrote. ``now_s`` is the time of a monotonic clock."""
        newest = self._newest.get(source, 0)
        for item in items:
            # Times may go back a little between the two streams of a sandbox, but a line must not overtake the one it
            # came after.
            newest = max(newest, item.at_ns)
            self._count += 1
            heapq.heappush(self._heap, (newest, self._count, now_s, source, item))
        self._newest[source] = newest

    def due(self, now_s: float, *, all: bool = False) -> Iterator[tuple[int, list[LogItem]]]:
        """Runs of (source, items) whose wait is over: everything up to the latest item that has waited long enough."""
        ripe = [at for at, _, came, _, _ in self._heap if all or now_s - came >= self.hold_s]
        if not ripe:
            return
        last = max(ripe)
        found = []
        while self._heap and self._heap[0][0] <= last:
            found.append(heapq.heappop(self._heap)[3:])
        for source, run in groupby(found, key=lambda pair: pair[0]):
            yield source, [item for _, item in run]
