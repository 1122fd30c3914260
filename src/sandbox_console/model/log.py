"""Log output: the bytes that a sandbox wrote, with their time and stream."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Stream(StrEnum):
    """Which stream a sandbox wrote to; TTY is the two merged by a terminal."""

    STDOUT = "stdout"
    STDERR = "stderr"
    TTY = "tty"


class LogRecord(Struct, frozen=True):
    """A line, or a part of a long one. ``data`` keeps the newline; a part that does not end its line has none."""

    at_ns: int
    stream: Stream
    data: bytes


MAYBE_ROTATED = "older lines may have been rotated away; the engine does not count them"
"""The reason of a gap before the first record of a log whose beginning may be gone."""


class LogGap(Struct, frozen=True):
    """Output that was lost or dropped here; ``lines`` is None if the number is not known."""

    at_ns: int
    reason: str
    lines: int | None = None


LogItem = LogRecord | LogGap


class LogQuery(Struct, frozen=True):
    """What to read. ``since`` and ``until`` are seconds since the epoch; ``tail`` None reads all.

    ``lines`` is False for a reader that only passes bytes on. A record may then hold many lines of one stream, with the
    time of the first or none (0). A backend may still return single lines. ``previous`` reads the run before the last
    restart alone, which needs Capability.LOG_PREVIOUS.
    """

    follow: bool = False
    tail: int | None = None
    since: float | None = None
    until: float | None = None
    lines: bool = True
    previous: bool = False
