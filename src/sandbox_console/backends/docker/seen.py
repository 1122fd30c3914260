"""Which log records were told already: a reconnect reads a little again, and rotation repeats lines."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from sandbox_console.model.log import LogRecord, Stream

RECENT = 8192

_Key = tuple[int, Stream, int]


@dataclass
class _Mark:
    """Where a stream is: the time of its last record, and what it wrote at that time, in order.

    The parts of a long line share one time and may be equal, so equal records are told apart by their number.
    """

    at_ns: int = 0
    told: list[int] = field(default_factory=list)
    again: int = 0


class Seen:
    """Times within one stream never go back, so what is older than the last was told already.

    ``last_ns`` is the newest of all streams, 0 before the first record; ``overlap`` whether the replay has met
    a record that was told before, so that nothing is missing between.
    """

    def __init__(self) -> None:
        self.last_ns = 0
        self.overlap = False
        self._marks: dict[Stream, _Mark] = {}
        self._recent: OrderedDict[_Key, None] = OrderedDict()
        self._replaying = False

    def replay(self) -> None:
        """The next records may be old ones."""
        self._replaying, self.overlap = True, False
        for mark in self._marks.values():
            mark.again = 0

    def live(self) -> None:
        """The replay has passed what was told: an older time is now told too, unless it is a repeat."""
        self._replaying = False

    def new(self, records: list[LogRecord]) -> list[LogRecord]:
        """Those not told before."""
        return [record for record in records if self._is_new(record)]

    def _is_new(self, record: LogRecord) -> bool:
        mark = self._marks.setdefault(record.stream, _Mark())
        word = hash(record.data)
        key = (record.at_ns, record.stream, word)
        if self._told(record.at_ns, mark, word, key):
            self.overlap = True
            return False
        self._recent[key] = None
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        if record.at_ns > mark.at_ns:
            mark.at_ns, mark.told, mark.again = record.at_ns, [], 0
        if record.at_ns == mark.at_ns:
            mark.told.append(word)
            mark.again = len(mark.told)
        self.last_ns = max(self.last_ns, record.at_ns)
        return True

    def _told(self, at_ns: int, mark: _Mark, word: int, key: _Key) -> bool:
        if at_ns < mark.at_ns:
            return self._replaying or key in self._recent
        if at_ns == mark.at_ns and self._replaying and mark.again < len(mark.told) and mark.told[mark.again] == word:
            mark.again += 1
            return True
        return False
