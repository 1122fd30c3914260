"""The log of a sandbox, of which the runtime gives the last 10,000 entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandbox_console.backends.a3s.client import Client, Place
from sandbox_console.backends.common.last_lines import after, within
from sandbox_console.backends.common.placed_backend import Runs
from sandbox_console.errors import NotFound
from sandbox_console.model.log import LogItem, LogQuery, LogRecord, Stream

if TYPE_CHECKING:
    from a3s_box import SandboxLogEntry

MOST_ENTRIES = 10_000
_POLL_S = 1.0
_MOST_NS = 1 << 63


async def read(client: Client, place: str, runs: Runs, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
    """Batches of the log. Following asks again every second, until the sandbox has ended."""
    going_on = query.follow and await runs()
    found = await _records(client, place)
    wanted = [one for one in found if within(one, query)]
    yield wanted if query.tail is None else wanted[len(wanted) - query.tail :] if query.tail else ()
    while going_on:
        await asyncio.sleep(_POLL_S)
        going_on = await runs()  # before the entries, so that the last of them are read
        now = await _records(client, place)
        if more := after(found, now, MOST_ENTRIES):
            yield more
        found = now or found


async def _records(client: Client, id_: str) -> list[LogRecord]:
    try:
        box = await client.box(Place(id_, (await client.inspected(id_)).generation))
        entries = await client.call("logs", box.logs(tail=MOST_ENTRIES))
    except NotFound:  # it was removed meanwhile
        return []
    found: list[LogRecord] = []
    for entry in entries:
        found.append(_record(entry, found[-1].at_ns if found else 0))
    return found


def _record(entry: SandboxLogEntry, before_ns: int) -> LogRecord:
    stream = Stream.STDERR if entry.stream == "stderr" else Stream.STDOUT
    at_ns = nanoseconds(entry.timestamp or "")
    return LogRecord(before_ns if at_ns is None else at_ns, stream, entry.message.encode("utf-8", "surrogatepass"))


def nanoseconds(when: str) -> int | None:
    """A time of RFC 3339 in ns since 1970; None for one that is not in the calendar, or that the log cannot hold."""
    head, _, rest = when.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    zone = rest[digits:] if digits else ""
    try:
        at = datetime.fromisoformat(head + zone)
        whole = int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None
    at_ns = whole * 10**9 + int(rest[:digits][:9].ljust(9, "0") or "0")
    return at_ns if 0 <= at_ns < _MOST_NS else None
