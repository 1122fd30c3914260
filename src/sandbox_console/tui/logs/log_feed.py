"""Follows one sandbox's output from its backend, and resumes where it stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from sandbox_console.errors import BackendUnreachable, ConsoleError
from sandbox_console.logs.read_position import Reading, ReadPosition
from sandbox_console.logs.store import UNREAD
from sandbox_console.model.log import LogGap, LogItem, LogQuery, LogRecord
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.text.formatting import error_words

RETRY_S = 2.0
"""Seconds between retries of a backend that is down, while its sandbox is shown."""
AGAIN = 5
"""Multiplier of the tail to read on resuming. An hour of a flood is millions of lines, and seconds of CPU time."""
SLACK_NS = 1_000
"""A time as a float of seconds is accurate to 240 ns in this century."""

Sink = Callable[[Sequence[LogItem]], None]
Note = Callable[[str], None]
Forget = Callable[[], int | None]
"""Drops unfinished lines, as they will be read again, and returns when the first of them began (ns)."""


class StreamState(Struct, frozen=True):
    """The state of a stream, as text. ``open`` means that more output may follow."""

    words: str = "FOLLOWING"
    open: bool = True


FOLLOWED = StreamState()
ASKED = StreamState("ASKING its backend", open=False)
WAITS = StreamState("WAITING for its backend", open=False)
ENDED = StreamState("ENDED by its backend", open=False)


class Feed:
    """Passes a sandbox's output to ``sink``. ``places`` is how far it has been read."""

    def __init__(self, console: Console, sandbox: Sandbox, sink: Sink, note: Note, forget: Forget) -> None:
        self.sandbox = sandbox
        self.places = ReadPosition()
        self._stand = ASKED
        self._started = asyncio.Event()
        self._console = console
        self._sink = sink
        self._note = note
        self._forget = forget

    @property
    def stand(self) -> StreamState:
        """The state of the stream, including whether it ended with its sandbox."""
        status = self.sandbox.status
        return StreamState(f"NOT RUNNING: {status}", open=False) if self.ended and not status.live else self._stand

    @property
    def ended(self) -> bool:
        """Whether all output has been read."""
        return self._stand is ENDED

    def renew(self, sandbox: Sandbox) -> None:
        """Update the sandbox. If it has started again, it is followed again."""
        before, self.sandbox = self.sandbox, sandbox
        runs = sandbox.status is Status.RUNNING and before.status is not Status.RUNNING
        if runs or before.started_at != sandbox.started_at:
            self._started.set()

    async def follow(self, tail: int) -> None:
        """Follow until cancelled, across stops and starts. Retries a backend that is down until it answers.

        Each change of ``stand`` is followed by a call with a note, which may be empty.
        """
        while True:
            self._started.clear()
            try:
                # A backend that is back is reported before its sandbox writes.
                await self._console.inspect(self.sandbox.ref)
                self._now(FOLLOWED)
                await self._once(tail)
                self._now(ENDED)
            except ConsoleError as error:
                waits = isinstance(error, BackendUnreachable)
                stand = WAITS if waits else StreamState(f"REFUSED: {clean(error.message, cap=60)}", open=False)
                self._now(stand, f"✕ {error_words(error)}")
                if waits:
                    await asyncio.sleep(RETRY_S)
                    continue
            await self._started.wait()

    def _now(self, stand: StreamState, note: str = "") -> None:
        self._stand = stand
        self._note(note)

    async def _once(self, tail: int) -> None:
        open_ns, since_ns = self._forget(), self.places.since_ns
        if since_ns is not None and open_ns is not None:
            since_ns = min(since_ns, open_ns)
        since = None if since_ns is None else (since_ns - SLACK_NS) / 1e9
        reading, last_ns = Reading(self.places), self.places.newest_ns
        query = LogQuery(follow=True, tail=tail if since is None else tail * AGAIN, since=since)
        async for batch in self._console.logs(self.sandbox.ref, query):
            if since is not None and batch:
                if _missed(batch, last_ns):
                    self._sink([LogGap(batch[0].at_ns, UNREAD)])
                since = None
            if new := reading.new(batch):
                self._sink(new)


def _missed(batch: Sequence[LogItem], last_ns: int) -> bool:
    """Return whether a batch should start before the last delivered line but starts after it and reports no gap."""
    return all(isinstance(item, LogRecord) and item.at_ns > last_ns for item in batch)
