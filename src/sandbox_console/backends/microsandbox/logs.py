"""A sandbox's output: of the console's own the main processes', boot after boot; of others all that they wrote.

Each entry of the runtime's has a cursor. What was read is followed from the last one, so nothing comes twice and
nothing is left out, whoever asks and however often.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from sandbox_console.backends.microsandbox import main_process, sdk, translate
from sandbox_console.backends.microsandbox.look import Looker
from sandbox_console.backends.microsandbox.sdk import result, translated
from sandbox_console.model.log import LogItem, LogQuery, LogRecord, Stream

_STREAMS = {"stdout": Stream.STDOUT, "stderr": Stream.STDERR, "output": Stream.TTY}
QUIET_S = 1.0
"""Without output for so long a followed sandbox is asked whether it still runs: its stream does not say."""

_OVER = ("stopped", "crashed")


async def read(module: Any, looker: Looker, handle: Any, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
    """What is kept, then, with ``follow`` and while it runs, what comes."""
    seen = translate.view(handle)
    mains = []
    if seen.spec is not None:
        mains = main_process.mains(await looker.jobs(module, handle), seen.spec.command)
    sources = [await sdk.call(module, "a log", handle.get_job(info.id)) for info in mains]
    if not sources and not seen.managed:
        sources = [handle]
    lines = Lines()
    kept: list[LogItem] = []
    cursor = None
    for source in sources:
        entries = await _entries(module, source, query)
        cursor = entries[-1].cursor if entries else None
        for entry in entries:
            kept += lines.feed(entry)
        kept += lines.rest() if source is not sources[-1] or not _follows(seen, query) else []
    if found := kept if query.tail is None else kept[len(kept) - query.tail :] if query.tail else []:
        yield found
    if sources and _follows(seen, query):
        async for batch in _follow(module, handle, sources[-1], cursor, query, lines):
            yield batch


def _follows(seen: translate.View, query: LogQuery) -> bool:
    return query.follow and seen.status not in _OVER


async def _entries(module: Any, source: Any, query: LogQuery) -> list[Any]:
    bounds = _bounds(source, query.since, query.until)
    found: list[Any] = await sdk.call(module, "a log", source.logs(**bounds))
    return found


def _bounds(source: Any, since: float | None, until: float | None) -> dict[str, Any]:
    """A job's log takes milliseconds as whole numbers and calls the bounds by other names."""
    job = type(source).__name__ == "Job"
    bounds = {"since" if job else "since_ms": since, "until" if job else "until_ms": until}
    return {key: int(value * 1000) if job else value * 1000 for key, value in bounds.items() if value is not None}


async def _follow(
    module: Any, handle: Any, source: Any, cursor: str | None, query: LogQuery, lines: Lines
) -> AsyncGenerator[Sequence[LogItem], None]:
    since = query.since if cursor is None else None
    with translated(module, "a log"):
        stream = await result(source.log_stream(from_cursor=cursor, follow=True, **_bounds(source, since, query.until)))
    waiting: asyncio.Future[Any] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(stream, None))
            done, _ = await asyncio.wait({waiting}, timeout=QUIET_S)
            if not done:
                if await _ended(handle, source):
                    break
                continue
            with translated(module, "a log"):
                entry, waiting = waiting.result(), None
            if entry is None:
                break
            if found := lines.feed(entry):
                yield found
        if last := lines.rest():
            yield last
    finally:
        if waiting is not None:
            waiting.cancel()


async def _ended(handle: Any, source: Any) -> bool:
    if str((await result(handle.refresh())).status) in _OVER:
        return True
    return type(source).__name__ == "Job" and (await result(source.inspect())).state not in ("starting", "running")


class Lines:
    """The runtime's chunks as lines: a chunk may hold several, or a part of one."""

    def __init__(self) -> None:
        self._open: dict[Stream, LogRecord] = {}

    def feed(self, entry: Any) -> list[LogItem]:
        """The lines that are whole now."""
        stream = _STREAMS.get(str(entry.source), Stream.STDOUT)
        at = int(entry.timestamp_ms if hasattr(entry, "timestamp_ms") else entry.timestamp) * 1_000_000
        found: list[LogItem] = []
        for part in entry.data.splitlines(keepends=True) if b"\r" not in entry.data else _split(entry.data):
            begun = self._open.pop(stream, None)
            record = LogRecord(begun.at_ns if begun else at, stream, (begun.data if begun else b"") + part)
            if part.endswith(b"\n"):
                found.append(record)
            else:
                self._open[stream] = record
        return found

    def rest(self) -> list[LogItem]:
        """The parts that were left open."""
        found: list[LogItem] = sorted(self._open.values(), key=lambda record: record.at_ns)
        self._open.clear()
        return found


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    whole = [part + b"\n" for part in parts[:-1]]
    return [*whole, parts[-1]] if parts[-1] else whole
