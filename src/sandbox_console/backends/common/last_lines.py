"""Following a log of which a server gives only the last lines, again and again."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_console.model.log import LogGap, LogItem, LogQuery, LogRecord


def after(before: Sequence[LogRecord], now: Sequence[LogRecord], most: int) -> list[LogItem]:
    """What is new. If the last known line is not among the last ``most`` ones any more, some were missed."""
    if not before:
        return [*now]
    for at in range(len(now) - 1, -1, -1):
        if now[at] == before[-1]:
            return [*now[at + 1 :]]
    return [LogGap(now[0].at_ns, f"more than {most} lines came within a second"), *now] if now else []


def within(record: LogRecord, query: LogQuery) -> bool:
    """Whether a line is of the time that is asked for."""
    at = record.at_ns / 1e9
    return (query.since is None or at >= query.since) and (query.until is None or at < query.until)
