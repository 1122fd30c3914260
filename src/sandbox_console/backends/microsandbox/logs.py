"""The output that the runtime kept of a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from sandbox_console.backends.microsandbox.sdk import result, translated
from sandbox_console.model.log import LogItem, LogQuery, LogRecord, Stream

_STREAMS = {"stdout": Stream.STDOUT, "stderr": Stream.STDERR, "output": Stream.TTY}
QUIET_S = 2.0
"""Without output for so long a followed sandbox is asked whether it still runs: its stream does not say."""


async def read(module: Any, handle: Any, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
    """What is kept, then, with ``follow`` and while it runs, what comes."""
    since = None if query.since is None else query.since * 1000
    until = None if query.until is None else query.until * 1000
    with translated(module, "a log"):
        entries = await result(handle.logs(tail=query.tail, since_ms=since, until_ms=until))
    if entries:
        yield [_record(entry) for entry in entries]
    if query.follow and str(handle.status) in ("starting", "running", "paused", "draining"):
        cursor = entries[-1].cursor if entries else None
        async for batch in _follow(module, handle, cursor, since if cursor is None else None, until):
            yield batch


async def _follow(
    module: Any, handle: Any, cursor: str | None, since: float | None, until: float | None
) -> AsyncGenerator[Sequence[LogItem], None]:
    with translated(module, "a log"):
        stream = await result(handle.log_stream(from_cursor=cursor, since_ms=since, until_ms=until, follow=True))
    waiting: asyncio.Future[Any] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(stream, None))
            done, _ = await asyncio.wait({waiting}, timeout=QUIET_S)
            if not done:
                if str((await result(handle.refresh())).status) in ("stopped", "crashed"):
                    return
                continue
            with translated(module, "a log"):
                entry, waiting = waiting.result(), None
            if entry is None:
                return
            yield [_record(entry)]
    finally:
        if waiting is not None:
            waiting.cancel()


def _record(entry: Any) -> LogRecord:
    return LogRecord(int(entry.timestamp_ms * 1_000_000), _STREAMS.get(str(entry.source), Stream.STDOUT), entry.data)
