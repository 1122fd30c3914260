"""Reads a sandbox's output.

For the console's own sandboxes it is that of the main processes over all boots, for others everything that was written.

Each entry of the runtime's log has a cursor. Reading continues from the last one, so nothing is repeated or missed,
however often it is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any

from sandbox_console.backends.microsandbox import main_process, sdk, translate
from sandbox_console.backends.microsandbox.inventory import Inventory
from sandbox_console.backends.microsandbox.sdk import result, translated
from sandbox_console.errors import NotFound
from sandbox_console.model.log import LogGap, LogItem, LogQuery, LogRecord, Stream

_STREAMS = {"stdout": Stream.STDOUT, "stderr": Stream.STDERR, "output": Stream.TTY}
QUIET_S = 1.0
"""After this long without output, a followed sandbox's state is checked, as its stream does not report an end."""

PIECE = 1024 * 1024
"""A longer line is returned in pieces."""

_LOST = "microsandbox keeps the newest 0.7 MB or so of a main process's output"
_OVER = ("stopped", "crashed")


async def read(module: Any, looker: Inventory, handle: Any, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
    """The stored output; then, with ``follow`` and while the sandbox runs, new output."""
    view = translate.view(handle)
    sources = await _sources(module, looker, handle, view)
    follows = query.follow and view.status not in _OVER
    lines, last = Lines(whole=query.since is None), Last(query.tail)
    async with aclosing(_kept(module, sources, query, lines, follows=follows)) as batches:
        async for batch in batches:
            if found := last.keep(batch):
                yield found
    if found := last.all():
        yield found
    if sources and follows:
        async with aclosing(_follow(module, handle, sources[-1], query, lines)) as coming:
            async for items in coming:
                yield items


async def _sources(module: Any, looker: Inventory, handle: Any, view: translate.View) -> list[Any]:
    """Its main processes, oldest first; for another tool's sandbox, everything that it wrote."""
    if view.spec is None:
        return [] if view.managed else [handle]
    mains = main_process.mains(await looker.jobs(module, handle), view.spec.command)
    found = [await sdk.call(module, "a log", handle.get_job(info.id)) for info in mains]
    return found if found or view.managed else [handle]


async def _kept(
    module: Any, sources: Sequence[Any], query: LogQuery, lines: Lines, *, follows: bool
) -> AsyncGenerator[list[LogItem], None]:
    """The stored output. A last line without its end is left to what follows."""
    for source in sources:
        async with aclosing(_entries(module, source, query)) as entries:
            async for entry in entries:
                yield lines.feed(entry)
        if source is not sources[-1] or not follows:
            yield lines.rest()


async def _entries(module: Any, source: Any, query: LogQuery, after: str | None = None) -> AsyncGenerator[Any, None]:
    """The stored entries, one by one, as a log may be large. ``after`` is a cursor."""
    bounds = _bounds(source, query.since if after is None else None, query.until)
    stream = await sdk.call(module, "a log", source.log_stream(from_cursor=after, follow=False, **bounds))
    while True:
        with translated(module, "a log"):
            entry = await result(anext(stream, None))
        if entry is None:
            return
        yield entry


def _bounds(source: Any, since: float | None, until: float | None) -> dict[str, Any]:
    """The bounds of a read. A job's log takes whole milliseconds, and has other names for them."""
    job = type(source).__name__ == "Job"
    bounds = {"since" if job else "since_ms": since, "until" if job else "until_ms": until}
    return {key: int(value * 1000) if job else value * 1000 for key, value in bounds.items() if value is not None}


async def _follow(
    module: Any, handle: Any, source: Any, query: LogQuery, lines: Lines
) -> AsyncGenerator[Sequence[LogItem], None]:
    cursor = lines.cursor
    since = query.since if cursor is None else None
    with translated(module, "a log"):
        stream = await result(source.log_stream(from_cursor=cursor, follow=True, **_bounds(source, since, query.until)))
    waiting: asyncio.Future[Any] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(stream, None))
            done, _ = await asyncio.wait({waiting}, timeout=QUIET_S)
            if not done:
                if not await _ended(handle, source):
                    continue
                waiting.cancel()
                break
            with translated(module, "a log"):
                entry, waiting = waiting.result(), None
            if entry is None:
                break
            if items := lines.feed(entry):
                yield items
        # Its last output may have arrived between the last look at the stream and its end.
        with suppress(NotFound):  # it may be removed by now
            async with aclosing(_entries(module, source, query, lines.cursor)) as entries:
                async for entry in entries:
                    yield lines.feed(entry)
        if last := lines.rest():
            yield last
    finally:
        if waiting is not None:
            waiting.cancel()


async def _ended(handle: Any, source: Any) -> bool:
    if str((await result(handle.refresh())).status) in _OVER:
        return True
    return type(source).__name__ == "Job" and (await result(source.inspect())).state not in ("starting", "running")


class Last:
    """The last ``count`` lines of the stored output. Without a count, nothing is held back."""

    def __init__(self, count: int | None) -> None:
        self._count = count
        self._kept: deque[LogItem] = deque(maxlen=count)

    def keep(self, items: list[LogItem]) -> list[LogItem]:
        """The records that can be passed on at once."""
        if self._count is None:
            return items
        self._kept.extend(items)
        return []

    def all(self) -> list[LogItem]:
        """The records that were held back."""
        return list(self._kept)


class Lines:
    """Turns the runtime's chunks into lines. A chunk may hold several, or part of one.

    The runtime numbers a main process's chunks from 1 and keeps the newest (two files of 0.5 MB), so a number that is
    not the next one means lost output. ``whole`` says that the first chunk should be number 1.
    """

    def __init__(self, *, whole: bool = True) -> None:
        self._next = 1 if whole else 0
        self._open: dict[Stream, LogRecord] = {}
        self.cursor: str | None = None
        """The newest entry since :meth:`rest`."""

    def feed(self, entry: Any) -> list[LogItem]:
        """The lines that are complete now."""
        self.cursor = getattr(entry, "cursor", None)
        stream = _STREAMS.get(str(entry.source), Stream.STDOUT)
        at = int(entry.timestamp_ms if hasattr(entry, "timestamp_ms") else entry.timestamp) * 1_000_000
        items = self._lost(at)
        for part in entry.data.splitlines(keepends=True) if b"\r" not in entry.data else _split(entry.data):
            begun = self._open.pop(stream, None)
            record = LogRecord(begun.at_ns if begun else at, stream, (begun.data if begun else b"") + part)
            if part.endswith(b"\n") or len(record.data) >= PIECE:
                items.append(record)
            else:
                self._open[stream] = record
        return items

    def _lost(self, at: int) -> list[LogItem]:
        number = (self.cursor or "").rpartition(":")[2]
        if not number.isdecimal():
            return []
        expected, self._next = self._next, int(number) + 1
        return [*self._left(), LogGap(at, _LOST)] if expected not in (0, int(number)) else []

    def rest(self) -> list[LogItem]:
        """The parts that were left open, at the end of a main process's output."""
        self.cursor, self._next = None, min(self._next, 1)
        return self._left()

    def _left(self) -> list[LogItem]:
        items: list[LogItem] = sorted(self._open.values(), key=lambda record: record.at_ns)
        self._open.clear()
        return items


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    whole = [part + b"\n" for part in parts[:-1]]
    return [*whole, parts[-1]] if parts[-1] else whole
