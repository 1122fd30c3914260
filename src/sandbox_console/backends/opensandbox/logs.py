"""The log of a sandbox: text with a time before each line, of which the server gives the last 10,000 lines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime

from sandbox_console.backends.common.last_lines import after, within
from sandbox_console.model.log import LogItem, LogQuery, LogRecord, Stream

MOST_LINES = 10_000
_POLL_S = 1.0
_NOTHING = "(no logs)"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ?", re.ASCII)
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
"""Only a line feed ends one: before a guest's other separators the server puts no time."""
_MOST_NS = 1 << 63

Read = Callable[[int], Awaitable[str]]
Runs = Callable[[], Awaitable[bool]]


async def read(lines: Read, runs: Runs, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
    """Batches of the log. Following asks again every second, until the sandbox has ended."""
    going_on = query.follow and await runs()
    found = _records(await lines(MOST_LINES))
    wanted = [one for one in found if within(one, query)]
    yield wanted if query.tail is None else wanted[len(wanted) - query.tail :] if query.tail else ()
    while going_on:
        await asyncio.sleep(_POLL_S)
        going_on = await runs()  # before the lines, so that the last of them are read
        now = _records(await lines(MOST_LINES))
        if more := after(found, now, MOST_LINES):
            yield more
        found = now or found


def _records(text: str) -> list[LogRecord]:
    if text in ("", _NOTHING):
        return []
    found: list[LogRecord] = []
    for line in _LINE.findall(text):
        time = _TIME.match(line)
        told = _ns(time[1], time[2] or "") if time else None
        at_ns = told if told is not None else found[-1].at_ns if found else 0
        data = line[time.end() :] if time and told is not None else line
        found.append(LogRecord(at_ns, Stream.STDOUT, data.encode("utf-8", "surrogatepass")))
    return found


def _ns(seconds: str, fraction: str) -> int | None:
    """The time in ns since 1970; None for one that is not in the calendar, or that the log cannot hold."""
    try:
        whole = int(datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
    at_ns = whole * 10**9 + int(fraction.ljust(9, "0"))
    return at_ns if 0 <= at_ns < _MOST_NS else None
