"""The log of a sandbox as E2B keeps it: which commands began and ended, and what they printed if its envd logs that."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime

from sandbox_console.backends.e2b.client import LOG_PAGE, LogEntry
from sandbox_console.model.log import LogItem, LogQuery, LogRecord, Stream

_POLL_S = 1.0
_MOST_PAGES = 1000
_YEAR_2200_MS = 7_258_118_400_000

Read = Callable[[int], Awaitable[Sequence[LogEntry]]]
Runs = Callable[[], Awaitable[bool]]


async def read(lines: Read, runs: Runs, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
    """Batches of the log. Following asks again every second, until the sandbox has ended."""
    going_on = query.follow and await runs()
    source = _Source(lines, int((query.since or 0.0) * 1000))
    last: deque[LogItem] = deque(maxlen=query.tail)
    async for batch in source.more():
        wanted = [one for one in batch if _within(one, query)]
        if query.tail is None:
            yield wanted
        else:
            last.extend(wanted)
    yield list(last)
    while going_on:
        await asyncio.sleep(_POLL_S)
        going_on = await runs()  # before the lines, so that the last of them are read
        async for batch in source.more():
            yield batch


class _Source:
    """Reads forward from a time. Lines of the last millisecond come again, so the known ones are left out."""

    def __init__(self, lines: Read, cursor_ms: int) -> None:
        self._lines, self._cursor_ms = lines, cursor_ms
        self._known: list[LogEntry] = []

    async def more(self) -> AsyncGenerator[list[LogRecord], None]:
        """What is new, page by page."""
        for _ in range(_MOST_PAGES):
            page = await self._lines(self._cursor_ms)
            new = _without(page, self._known)
            yield [_record(one) for one in new]
            if page and (at := _ms(page[-1].timestamp)) >= self._cursor_ms:
                self._known = [one for one in page if _ms(one.timestamp) == at]
                self._cursor_ms = at
            if len(page) < LOG_PAGE or not new:
                return


def _without(page: Sequence[LogEntry], known: Sequence[LogEntry]) -> list[LogEntry]:
    left = [*known]
    new = []
    for one in page:
        if one in left:
            left.remove(one)
        else:
            new.append(one)
    return new


def _record(entry: LogEntry) -> LogRecord:
    printed, command = entry.fields.get("data"), entry.fields.get("command")
    text = printed if isinstance(printed, str) else entry.message + (f": {command}" if command else "")
    text = text if text.endswith("\n") else text + "\n"
    return LogRecord(_ms(entry.timestamp) * 10**6, Stream.STDOUT, text.encode("utf-8", "surrogatepass"))


def _ms(when: datetime) -> int:
    """Milliseconds since 1970, within what the log can hold."""
    try:
        return min(max(int(when.timestamp() * 1000), 0), _YEAR_2200_MS)
    except (ValueError, OverflowError):
        return 0


def _within(record: LogRecord, query: LogQuery) -> bool:
    at = record.at_ns / 1e9
    return (query.since is None or at >= query.since) and (query.until is None or at < query.until)
