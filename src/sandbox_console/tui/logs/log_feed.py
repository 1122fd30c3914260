"""One sandbox's output from its backend: followed, taken up again where it was left, and older parts of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from sandbox_console.errors import BackendUnreachable, ConsoleError
from sandbox_console.logs.places import Places, Reading
from sandbox_console.logs.store import LineStore
from sandbox_console.model.log import LogGap, LogItem, LogQuery, LogRecord
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.text.formatting import error_words

RETRY_S = 2.0
"""A backend that is down is asked again so often, while its sandbox is looked at."""
OLDER_LINES = 5_000
AGAIN = 5
"""Times the tail: as much is read at a return. An hour of a flood is millions of lines, and seconds of CPU."""
_UNREAD = "it came while nobody looked, and was not read"
_SLACK_NS = 1_000
"""A time as a float of seconds is right to 240 ns in this century."""

Sink = Callable[[Sequence[LogItem]], None]
Note = Callable[[str], None]
Forget = Callable[[], int | None]
"""Drops the lines that have no end yet, as they are read again; gives when the first of them began (ns)."""


class Stand(Struct, frozen=True):
    """How a stream stands, in words; ``open`` while more may come of it."""

    words: str = "FOLLOWING"
    open: bool = True


FOLLOWED = Stand()
ASKED = Stand("ASKING its backend", open=False)
WAITS = Stand("WAITING for its backend", open=False)
ENDED = Stand("ENDED by its backend", open=False)


class Feed:
    """Passes what a sandbox writes to ``sink``; ``places`` is how far it was read."""

    def __init__(self, console: Console, sandbox: Sandbox, sink: Sink, note: Note, forget: Forget) -> None:
        self.sandbox = sandbox
        self.places = Places()
        self._stand = ASKED
        self._started = asyncio.Event()
        self._console = console
        self._sink = sink
        self._note = note
        self._forget = forget

    @property
    def stand(self) -> Stand:
        """How its stream stands; one that ended with its sandbox says so."""
        status = self.sandbox.status
        return Stand(f"NOT RUNNING: {status}", open=False) if self.ended and not status.live else self._stand

    @property
    def ended(self) -> bool:
        """Whether all that there was has been read."""
        return self._stand is ENDED

    def renew(self, sandbox: Sandbox) -> None:
        """Take its sandbox as it is now; one that started again is followed again."""
        before, self.sandbox = self.sandbox, sandbox
        runs = sandbox.status is Status.RUNNING and before.status is not Status.RUNNING
        if runs or before.started_at != sandbox.started_at:
            self._started.set()

    async def follow(self, tail: int) -> None:
        """Follow until cancelled, over its ends and starts. A backend that is down is asked until it answers.

        Each change of ``stand`` is followed by a note, which may be empty.
        """
        while True:
            self._started.clear()
            try:
                # A backend that is back says so before its sandbox writes.
                await self._console.inspect(self.sandbox.ref)
                self._now(FOLLOWED)
                await self._once(tail)
                self._now(ENDED)
            except ConsoleError as error:
                waits = isinstance(error, BackendUnreachable)
                stand = WAITS if waits else Stand(f"REFUSED: {clean(error.message, cap=60)}", open=False)
                self._now(stand, f"✕ {error_words(error)}")
                if waits:
                    await asyncio.sleep(RETRY_S)
                    continue
            await self._started.wait()

    def _now(self, stand: Stand, note: str = "") -> None:
        self._stand = stand
        self._note(note)

    async def _once(self, tail: int) -> None:
        open_ns, since_ns = self._forget(), self.places.since_ns
        if since_ns is not None and open_ns is not None:
            since_ns = min(since_ns, open_ns)
        since = None if since_ns is None else (since_ns - _SLACK_NS) / 1e9
        reading, last_ns = Reading(self.places), self.places.newest_ns
        query = LogQuery(follow=True, tail=tail if since is None else tail * AGAIN, since=since)
        async for batch in self._console.logs(self.sandbox.ref, query):
            if since is not None and batch:
                if _missed(batch, last_ns):
                    self._sink([LogGap(batch[0].at_ns, _UNREAD)])
                since = None
            if new := reading.new(batch):
                self._sink(new)


def _missed(batch: Sequence[LogItem], last_ns: int) -> bool:
    """Whether a reading that was to begin before the last line that was told begins behind it, and does not say so."""
    return all(isinstance(item, LogRecord) and item.at_ns > last_ns for item in batch)


class Older(Struct, frozen=True):
    """Lines before the oldest of a store; whether the log begins there, and whether memory had no room for more."""

    items: list[LogItem]
    at_start: bool = False
    full: bool = False


async def older(console: Console, ref: SandboxRef, store: LineStore, born: float | None, since_ns: int | None) -> Older:
    """The lines right before the oldest of a store: at most OLDER_LINES, or all back to ``since_ns``.

    Asks by windows of time, each four times the one before: backends count a tail from the log's end, whatever
    ``until`` says. Raises ConsoleError.
    """
    oldest = store.oldest_ns
    if oldest is None:
        return Older([], at_start=True)
    floor_ns = int(born * 1e9) - 10**9 if born else 0
    span_ns = _window(store, oldest) if since_ns is None else max(oldest - since_ns, 0)
    known = store.at_oldest()
    while True:
        start_ns = max(oldest - span_ns, floor_ns)
        query = LogQuery(since=start_ns / 1e9, until=(oldest + _SLACK_NS) / 1e9)
        found = _Newest(None if since_ns is not None else OLDER_LINES + known, store.room_bytes)
        async for batch in console.logs(ref, query):
            found.take(item for item in batch if item.at_ns <= oldest)
        items = _without_known(found.items, oldest, known)
        at_start = start_ns <= floor_ns and not found.cut
        if items or at_start or since_ns is not None:
            return Older(items, at_start, found.full)
        span_ns *= 4


class _Newest:
    """The newest of what passes: so many items, so many bytes."""

    def __init__(self, most: int | None, room_bytes: int) -> None:
        self.items: deque[LogItem] = deque()
        self.cut = self.full = False
        self._most = most
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
    """How long, at the rate of the lines held, OLDER_LINES take; at least a second."""
    length = (store.newest_ns or oldest) - oldest
    return max(length * OLDER_LINES // max(len(store), 1), 10**9)


def _without_known(found: Sequence[LogItem], oldest: int, known: int) -> list[LogItem]:
    """Of the lines at the very time of the oldest held, the last ``known`` are held already."""
    items = list(found)
    same = [at for at, item in enumerate(items) if item.at_ns == oldest][-known:]
    held = set(same)
    return [item for at, item in enumerate(items) if at not in held]
