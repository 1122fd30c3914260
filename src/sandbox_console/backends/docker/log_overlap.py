"""Drops log records that were already delivered, as a reconnect reads a little twice and rotation repeats lines."""

from __future__ import annotations

from collections import deque

from msgspec import Struct, field

from sandbox_console.model.log import LogRecord, Stream

RECENT = 8192
RECENT_NS = 10 * 10**9
"""How much of a stream is remembered, in records and by time, as a rotation repeats what was written last."""


class _Mark(Struct):
    """The position in a stream: the time of its last record, and what it wrote at that time, in order.

    The parts of a long line share one time and may be equal, so equal records are distinguished by their number.
    """

    at_ns: int = 0
    reported: list[int] = field(default_factory=list)
    again: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT))


class ReportedRecords:
    """The records that have been reported. Times within a stream never go back, so older records are repeats.

    ``last_ns`` is the newest of all streams, 0 before the first record; ``overlap`` is whether the replay has reached a
    record that was already reported, so that nothing is missing in between.
    """

    def __init__(self) -> None:
        self.last_ns = 0
        self.overlap = False
        self._marks: dict[Stream, _Mark] = {}
        self._replaying = False

    def replay(self) -> None:
        """Allow the next records to be old ones."""
        self._replaying, self.overlap = True, False
        for mark in self._marks.values():
            mark.again = 0

    def live(self) -> None:
        """Note that the replay has passed what was reported: older times are reported too, unless they are repeats."""
        self._replaying = False

    def new(self, records: list[LogRecord]) -> list[LogRecord]:
        """The records that were not reported before."""
        return [record for record in records if self._is_new(record)]

    def _is_new(self, record: LogRecord) -> bool:
        mark = self._marks.get(record.stream)
        if mark is None:
            mark = self._marks[record.stream] = _Mark()
        at_ns, word = record.at_ns, hash(record.data)
        if at_ns > mark.at_ns:  # nearly every record
            mark.at_ns, mark.reported, mark.again = at_ns, [word], 1
        elif self._was_reported(at_ns, mark, word):
            self.overlap = True
            return False
        elif at_ns == mark.at_ns:
            mark.reported.append(word)
            mark.again = len(mark.reported)
        self._remember(mark, at_ns, word)
        return True

    def _remember(self, mark: _Mark, at_ns: int, word: int) -> None:
        recent = mark.recent
        recent.append((at_ns, word))
        while recent[0][0] < at_ns - RECENT_NS:
            recent.popleft()
        self.last_ns = max(self.last_ns, at_ns)

    def _was_reported(self, at_ns: int, mark: _Mark, word: int) -> bool:
        if at_ns < mark.at_ns:
            return self._replaying or (at_ns, word) in mark.recent
        if self._replaying and mark.again < len(mark.reported) and mark.reported[mark.again] == word:
            mark.again += 1
            return True
        return False
