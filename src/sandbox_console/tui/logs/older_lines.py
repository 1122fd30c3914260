"""Reads log lines older than those in memory: a page, everything since a time, or everything."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from sandbox_console.logs.index import LineIndex
from sandbox_console.logs.pattern import Pattern
from sandbox_console.logs.store import CHUNK_BYTES, NO_ROOM, LineStore
from sandbox_console.model.log import MAYBE_ROTATED, LogGap, LogItem, LogQuery, LogRecord
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service import Console
from sandbox_console.tui.logs.log_feed import SLACK_NS

OLDER_LINES = 5_000
_ALL = 1 << 62
_STREAMS = 2


class Older(Struct, frozen=True):
    """Lines before the oldest of a store, whether the log begins there, and whether memory had no room for more."""

    items: list[LogItem]
    at_start: bool = False
    full: bool = False


async def older(console: Console, ref: SandboxRef, store: LineStore, born: float | None, since_ns: int | None) -> Older:
    """Return the lines directly before the oldest of a store: at most OLDER_LINES, or all back to ``since_ns``.

    Reads in windows of time, each four times the previous one: backends count a tail from the log's end, whatever
    ``until`` says. Raises ConsoleError.
    """
    oldest = store.oldest_ns
    if oldest is None:
        return Older([], at_start=True)
    floor_ns = int(born * 1e9) - 10**9 if born else 0
    span_ns = _window(store, oldest) if since_ns is None else max(oldest - since_ns, 0)
    known = _at_oldest(store)
    while True:
        start_ns = max(oldest - span_ns, floor_ns)
        query = LogQuery(since=start_ns / 1e9, until=(oldest + SLACK_NS) / 1e9)
        found = _Newest(None if since_ns is not None else OLDER_LINES + len(known), store.room_bytes)
        async for batch in console.logs(ref, query):
            found.take(item for item in batch if item.at_ns <= oldest)
        items = _without_known(found.items, oldest, known)
        at_start = start_ns <= floor_ns and not found.cut
        if items or at_start or since_ns is not None:
            return Older(items, at_start, found.full)
        span_ns *= 4


class _Newest:
    """Keeps the newest items that pass through, up to a number of items and bytes."""

    def __init__(self, limit: int | None, room_bytes: int) -> None:
        self.items: deque[LogItem] = deque()
        self.cut = self.full = False
        self._most = limit
        self._left = room_bytes

    def take(self, items: Iterable[LogItem]) -> None:
        for item in items:
            self.items.append(item)
            self._left -= _bytes(item)
            self.full |= self._left < 0
            while self.items and (self._left < 0 or len(self.items) > (self._most or len(self.items))):
                self._left += _bytes(self.items.popleft())
                self.cut = True


def _bytes(item: LogItem) -> int:
    return len(item.data) if isinstance(item, LogRecord) else 0


def _window(store: LineStore, oldest: int) -> int:
    """Return how long OLDER_LINES take at the rate of the lines in memory, but at least a second."""
    length = (store.newest_ns or oldest) - oldest
    return max(length * OLDER_LINES // max(len(store), 1), 10**9)


def _without_known(found: Sequence[LogItem], oldest: int, known: Sequence[bytes]) -> list[LogItem]:
    """Return the lines without the ``known`` ones, which are the last ones with the exact time of the oldest in memory.

    A line whose end is in a later write of its sandbox may be missing among those found, as its end was not read.
    """
    items = list(found)
    same = [at for at, item in enumerate(items) if item.at_ns == oldest]
    counts = (count for count in range(len(known), max(len(known) - _STREAMS, 1) - 1, -1))
    fits = (count for count in counts if _same(([items[at] for at in same])[-count:], known[:count]))
    known_lines = set(same[-next(fits, len(known)) :])
    return [item for at, item in enumerate(items) if at not in known_lines]


def _at_oldest(store: LineStore) -> list[bytes]:
    """Return the lines with exactly the time of the oldest one."""
    return [store.line(store.first + at).data for at in range(store.at_oldest())]


def _same(items: Sequence[LogItem], known: Sequence[bytes]) -> bool:
    return len(items) == len(known) and all(
        isinstance(item, LogGap) or data.startswith(item.data) for item, data in zip(items, known, strict=True)
    )


class OlderLog:
    """All of a log before the oldest line of a store, read once from the beginning.

    ``lines`` holds what fits: the newest lines, or with ``head`` the oldest and a gap that counts the rest. ``read``
    is the number of lines so far, ``found`` the number that match ``pattern``, including those that did not fit.
    """

    def __init__(self, store: LineStore, pattern: Pattern | None, *, head: bool) -> None:
        self.read = self.found = 0
        self.share = 0.0
        self.rotated: int | None = None
        """How many lines rotation took: None if it took none, -1 if some of it is not counted."""
        self.maybe_rotated = False
        """Whether rotation may have taken lines, of which the backend says nothing."""
        self._oldest, self._known = store.oldest_ns or 0, _at_oldest(store)
        self._room = store.room_bytes // 2 if head else _ALL
        self.lines = LineStore(_ALL if head else store.room_bytes * 3 // 4)
        self._index = LineIndex(self.lines, pattern) if pattern is not None else None
        self._at_oldest: list[LogItem] = []
        self._left_out = 0
        self._begin_ns: int | None = None

    async def fill(self, console: Console, ref: SandboxRef, tell: Callable[[], None]) -> None:
        """Read the lines, calling ``tell`` on progress. Raises ConsoleError."""
        async for batch in console.logs(ref, LogQuery(until=(self._oldest + SLACK_NS) / 1e9)):
            self._take([item for item in batch if item.at_ns < self._oldest])
            self._at_oldest += (item for item in batch if item.at_ns == self._oldest)
            tell()
            await asyncio.sleep(0)
        if self._left_out:
            self.lines.append([LogGap(self._oldest, NO_ROOM, self._left_out)])
        self._keep(_without_known(self._at_oldest, self._oldest, self._known))
        self.lines.end_partials()
        self._look()
        self.lines.begins = not self.lines.dropped

    @property
    def not_held(self) -> int:
        """The number of lines that were read but did not fit."""
        return self._left_out + self.lines.dropped

    @property
    def found_not_held(self) -> int:
        """The number of these that match."""
        if self._index is None:
            return 0
        self._index.forget()
        return self.found - len(self._index)

    def _take(self, items: Sequence[LogItem]) -> None:
        if any(isinstance(item, LogGap) and item.reason == MAYBE_ROTATED for item in items):  # the last of all
            self.maybe_rotated = True
            items = [item for item in items if not isinstance(item, LogGap)]
        if not items:
            return
        if self._begin_ns is None:
            self._begin_ns = items[0].at_ns
        self.share = (items[-1].at_ns - self._begin_ns) / max(self._oldest - self._begin_ns, 1)
        gone = [item.lines for item in items if isinstance(item, LogGap) and item.reason == "rotated away"]
        if gone:
            counted = None not in gone and self.rotated != -1
            self.rotated = (self.rotated or 0) + sum(filter(None, gone)) if counted else -1
        self.read += sum(isinstance(item, LogRecord) and item.data.endswith(b"\n") for item in items)
        if self._room == _ALL:
            self._keep(items)
            return
        for item in items:
            if self.lines.size_bytes >= self._room:
                self._left_out += isinstance(item, LogRecord) and item.data.endswith(b"\n")
            else:
                self.lines.append([item])

    def _keep(self, items: Sequence[LogItem]) -> None:
        """Add items in pieces smaller than a chunk, so that no line is dropped for lack of room before it is read."""
        piece: list[LogItem] = []
        size = 0
        for item in items:
            piece.append(item)
            size += _bytes(item)
            if size > CHUNK_BYTES // 2:
                self.lines.append(piece)
                self._look()
                piece, size = [], 0
        self.lines.append(piece)
        self._look()

    def _look(self) -> None:
        """Count matches among new lines, before they are dropped to make room."""
        if self._index is None:
            return
        self._index.forget()
        before = len(self._index.lines)
        self._index.update()
        self.found += len(self._index.lines) - before
