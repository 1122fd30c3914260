"""Remembers how far a log was read, so that a later reading continues there without repeating or missing lines.

A time alone is not enough: many lines have the same time if they came in one read of a pipe or in one millisecond, and
a reading may end between two of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct, field

from sandbox_console.model.log import LogItem, LogRecord, Stream

OVERLAP_NS = 10**9
"""The two streams of a sandbox are not in order with each other. No record is further behind than this."""

_Word = int


class _Place(Struct):
    """The time of the last line, and how often each line with that time was read."""

    at_ns: int = -1
    lines: dict[_Word, int] = field(default_factory=dict)

    def add(self, at_ns: int, word: _Word) -> int:
        if at_ns != self.at_ns:
            self.at_ns, self.lines = at_ns, {word: 1}
            return 1
        count = self.lines[word] = self.lines.get(word, 0) + 1
        return count


class ReadPosition:
    """How far each stream of one log was read, in whole lines. A line without its end is read again from its start.

    Several readings may share one position, as two views of a sandbox do.
    """

    def __init__(self) -> None:
        self.reported: dict[Stream | None, _Place] = defaultdict(_Place)

    @property
    def newest_ns(self) -> int:
        """The time of the newest line; -1 before the first."""
        return max((position.at_ns for stream, position in self.reported.items() if stream is not None), default=-1)

    @property
    def since_ns(self) -> int | None:
        """The time from which the next reading must start; None before the first line."""
        return newest - OVERLAP_NS if (newest := self.newest_ns) >= 0 else None


class Reading:
    """One reading of a log, which may begin before the position."""

    def __init__(self, places: ReadPosition) -> None:
        self._places = places
        self._begins_ns = places.newest_ns
        self._met: dict[Stream | None, _Place] = defaultdict(_Place)

    def new(self, items: Sequence[LogItem], *, over: bool = False) -> list[LogItem]:
        """The records that were not read before. ``over`` says that a line without an end will not get one."""
        return [item for item in items if self._is_new(item, over)]

    def _is_new(self, item: LogItem, over: bool) -> bool:
        if isinstance(item, LogRecord):
            stream, word, whole = item.stream, hash(item.data), over or item.data.endswith(b"\n")
        elif item.at_ns < self._begins_ns:  # lost before lines that have been reported
            return False
        else:
            stream, word, whole = None, hash((item.reason, item.lines)), True
        reported, met = self._places.reported[stream], self._met[stream]
        at_ns = item.at_ns
        back = at_ns < met.at_ns  # a clock was put back, so this reading's times are not comparable
        if at_ns < reported.at_ns and not back:
            met.add(at_ns, word)
            return False
        count = met.add(at_ns, word)
        if at_ns == reported.at_ns and count <= reported.lines.get(word, 0):
            return False
        if whole:
            reported.add(at_ns, word)
        return True
