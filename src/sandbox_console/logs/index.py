"""Which lines match a pattern: for filters and searches over a million lines."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator

from sandbox_console.errors import UsageError
from sandbox_console.logs.store import LineStore


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """A regular expression over raw lines; in lower case it ignores ASCII case. Raises UsageError."""
    flags = re.MULTILINE | (0 if any(c.isupper() for c in text) else re.IGNORECASE)
    try:
        return re.compile(text.encode("utf-8", "surrogatepass"), flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(
            f"{text!r} is not a regular expression: {error}", hint="escape . * + ? ( [ { \\ | ^ $ with a backslash"
        ) from None


class LineIndex:
    """The numbers of the lines of a store that match, kept up as the store grows and drops.

    Matching goes chunk by chunk over raw bytes: ``advance()`` is a generator so that a caller on the event loop can
    pause between chunks (1 MiB: 1 to 2 ms). A match is within one line.
    """

    def __init__(self, store: LineStore, pattern: re.Pattern[bytes]) -> None:
        self.pattern = pattern
        self.lines = array("Q")
        self._store = store
        self._next = store.first

    @property
    def complete(self) -> bool:
        """Whether every whole line has been looked at."""
        return self._next >= self._store.end

    def advance(self) -> Iterator[int]:
        """Look at the lines that are new, a chunk a step; yields how many were found so far."""
        self.forget()
        for first, end, chunk in self._store.chunks(self._next):
            self._match(first, max(first, self._next), end, chunk)
            self._next = end
            yield len(self.lines)

    def update(self) -> None:
        """Look at all lines that are new, at once."""
        for _ in self.advance():
            pass

    def _match(self, first: int, start: int, end: int, chunk: bytearray) -> None:
        search, found, line_at = self.pattern.search, self.lines, self._store.line_at
        at = self._store.start_of(start)
        size = len(chunk)
        while at < size and (match := search(chunk, at)):
            if match.start() >= size:  # an empty match behind the last newline
                break
            number, line_end = line_at(first, end, match.start())
            # A class like [^x] runs over newlines: then the line is asked alone.
            if match.end() <= line_end or search(self._store.line(number).data):
                found.append(number)
            at = line_end

    def forget(self) -> None:
        """Let go of the lines that the store has dropped."""
        first = self._store.first
        if self.lines and self.lines[0] < first:
            del self.lines[: bisect_left(self.lines, first)]
        self._next = max(self._next, first)

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
