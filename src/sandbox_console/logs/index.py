"""Which lines match a pattern: for filters and searches over a million lines."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from sandbox_console.logs.pattern import Pattern
from sandbox_console.logs.store import LineStore


class LineIndex:
    """The numbers of the lines of a store that match, kept up as the store grows at either end and drops.

    Matching goes chunk by chunk over raw bytes: ``advance()`` is a generator so that a caller on the event loop can
    pause between chunks (1 MiB: 1 to 2 ms). A match is within one line.
    """

    def __init__(self, store: LineStore, pattern: Pattern) -> None:
        self.pattern = pattern
        self.lines = array("q")
        self._store = store
        self._low = self._next = store.first

    @property
    def complete(self) -> bool:
        """Whether every whole line has been looked at."""
        return self._next >= self._store.end and self._low <= self._store.first

    def advance(self) -> Iterator[int]:
        """Look at the lines that are new, a chunk a step; yields how many were found so far."""
        self.forget()
        for first, end, chunk in self._store.chunks(self._next):
            self._match(self.lines, first, max(first, self._next), end, chunk)
            self._next = end
            yield len(self.lines)
        self._look_back()

    def update(self) -> None:
        """Look at all lines that are new, at once."""
        for _ in self.advance():
            pass

    def _look_back(self) -> None:
        """Look at lines that were put before the oldest; they come in small lots."""
        if self._low <= self._store.first:
            return
        older = array("q")
        for first, end, chunk in self._store.chunks(self._store.first):
            if first >= self._low:
                break
            self._match(older, first, first, min(end, self._low), chunk)
        self._low = self._store.first
        self.lines = older + self.lines

    def _match(self, found: array[int], first: int, start: int, end: int, chunk: bytearray) -> None:
        if self.pattern.inverse:
            hits = array("q")
            self._hits(hits, first, start, end, chunk)
            excluded = set(hits)
            found.extend(number for number in range(start, end) if number not in excluded)
        else:
            self._hits(found, first, start, end, chunk)

    def _hits(self, found: array[int], first: int, start: int, end: int, chunk: bytearray) -> None:
        search, line_at = self.pattern.lines.search, self._store.line_at
        at = self._store.start_of(start)
        size = self._store.stop_of(end - 1)
        while at < size and (match := search(chunk, at, size)):
            if match.start() >= size:  # an empty match behind the last newline
                break
            number, at = line_at(first, end, match.start())
            found.append(number)

    def forget(self) -> None:
        """Let go of the lines that the store has dropped."""
        first = self._store.first
        if self.lines and self.lines[0] < first:
            del self.lines[: bisect_left(self.lines, first)]
        self._next = max(self._next, first)
        self._low = max(self._low, first)

    def after(self, number: int) -> int | None:
        """The first match past a line, or None."""
        at = bisect_left(self.lines, number + 1)
        return self.lines[at] if at < len(self.lines) else None

    def before(self, number: int) -> int | None:
        """The last match ahead of a line, or None."""
        at = bisect_left(self.lines, number)
        return self.lines[at - 1] if at else None

    def row_of(self, number: int) -> int:
        """The place of a line among the matches, or of the next match past it."""
        return bisect_left(self.lines, number)
