"""Which log records were told already: a reconnect reads a little again, and rotation repeats lines."""

from __future__ import annotations

from collections import OrderedDict

from sandbox_console.model.log import LogRecord, Stream

RECENT = 8192

_Key = tuple[int, Stream, int]


class Seen:
    """Timestamps within one stream only grow, so what is older than the last was told, or is late.

    ``last_ns`` is the newest of all streams, 0 before the first record.
    """

    def __init__(self) -> None:
        self.last_ns = 0
        self._last: dict[Stream, int] = {}
        self._recent: OrderedDict[_Key, None] = OrderedDict()
        self._replaying = False
        self.overlap = False

    def replay(self) -> None:
        """The next records may be old ones: those below the last of their stream are dropped."""
        self._replaying, self.overlap = True, False

    def live(self) -> None:
        """Replayed far enough: old timestamps are now told unless they are repeats."""
        self._replaying = False

    def new(self, records: list[LogRecord]) -> list[LogRecord]:
        """Those not told before. ``overlap`` tells whether an old one was met, so that nothing is missing between."""
        return [record for record in records if self._is_new(record)]

    def _is_new(self, record: LogRecord) -> bool:
        key = (record.at_ns, record.stream, hash(record.data))
        last = self._last.get(record.stream, 0)
        if record.at_ns <= last and (key in self._recent or (self._replaying and record.at_ns < last)):
            self.overlap = True
            return False
        self._recent[key] = None
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        self._last[record.stream] = max(last, record.at_ns)
        self.last_ns = max(self.last_ns, record.at_ns)
        return True
