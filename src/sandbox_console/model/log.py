"""Log output: the bytes the sandbox wrote, with their time and stream."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Stream(StrEnum):
    """Which stream a sandbox wrote to; TTY is the two merged by a terminal."""

    STDOUT = "stdout"
    STDERR = "stderr"
    TTY = "tty"


class LogRecord(Struct, frozen=True):
    """A line, or a part of a long one: ``data`` keeps its newline, and only a whole line ends with one."""

    at_ns: int
    stream: Stream
    data: bytes


class LogGap(Struct, frozen=True):
    """Output that was lost or dropped here; ``lines`` is None if the number is not known."""

    at_ns: int
    reason: str
    lines: int | None = None


LogItem = LogRecord | LogGap


class LogQuery(Struct, frozen=True):
    """What to read. ``since`` and ``until`` are seconds since the epoch; ``tail`` None reads all.

    ``lines`` is False for who only passes bytes on: a record may then be many lines of one stream, with the first one's
    time or none (0). A backend may give lines all the same.
    """

    follow: bool = False
    tail: int | None = None
    since: float | None = None
    until: float | None = None
    lines: bool = True
