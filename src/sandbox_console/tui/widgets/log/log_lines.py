"""The lines that a log view scrolls through: all lines of a store, or those that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from time import perf_counter
from typing import NamedTuple

from sandbox_console.logs.index import LineIndex
from sandbox_console.logs.pattern import compile_pattern
from sandbox_console.logs.store import Line, LineStore


class Patterns(NamedTuple):
    """The search and the filter, as typed."""

    search: str | None = None
    filter: str | None = None


class ShownLines:
    """Rows 0.. over a store. A row is a line's position among those shown, and a number is its own."""

    def __init__(self, store: LineStore) -> None:
        self.store = store
        self.filter: LineIndex | None = None
        self.search: LineIndex | None = None

    @property
    def patterns(self) -> Patterns:
        """The active search and filter."""
        search, found = (one.pattern.text if one is not None else None for one in (self.search, self.filter))
        return Patterns(search, found)

    def use(self, store: LineStore, patterns: Patterns) -> None:
        """Show another store, with its own search and filter."""
        self.store = store
        self.set_search(patterns.search)
        self.set_filter(patterns.filter)

    def set_filter(self, pattern: str | None) -> None:
        """Show only lines that match. A leading ``!`` negates the pattern. Raises UsageError."""
        self.filter = LineIndex(self.store, compile_pattern(pattern, invertible=True)) if pattern else None

    def set_search(self, pattern: str | None) -> None:
        """Search for a pattern. Raises UsageError."""
        self.search = LineIndex(self.store, compile_pattern(pattern)) if pattern else None

    def forget(self) -> None:
        """Forget lines that the store has dropped."""
        for index in (self.filter, self.search):
            if index is not None:
                index.forget()

    def scan(self, budget_s: float, clock: Callable[[], float] = perf_counter) -> bool:
        """Scan new lines for about ``budget_s`` seconds. Returns whether that was all of them."""
        until = clock() + budget_s
        for index in (self.filter, self.search):
            for _ in index.advance() if index is not None else ():
                if clock() > until:
                    return False
        return True

    @property
    def looked_through(self) -> float:
        """How much the filter and the search have scanned, from 0 to 1."""
        return min((index.share for index in (self.filter, self.search) if index is not None), default=1.0)

    @property
    def shown(self) -> int:
        """The number of lines to scroll through."""
        return self.total if self.filter is None else len(self.filter)

    @property
    def total(self) -> int:
        """The number of lines, whether filtered or not."""
        return len(self.store) + len(self.store.partials())

    def line_at(self, row: int) -> Line:
        """Return the line of a row."""
        if self.filter is not None:
            return self.filter.line_at(row)
        if row < len(self.store):
            return self.store.line(self.store.first + row)
        return self.store.partials()[row - len(self.store)]

    def row_of(self, number: int) -> int:
        """Return the row of a line, or of the next one shown after it."""
        return max(0, number - self.store.first) if self.filter is None else self.filter.row_of(number)

    def raw(self) -> Callable[[], Iterator[bytes]]:
        """Return a thread-safe function that yields the shown lines as the sandbox wrote them, without user marks."""
        store = self.store.frozen()
        if self.filter is None:
            return store.raw
        numbers, rest = self.filter.lines[:], self.filter.open
        lines = (store.line(number) for number in numbers if number >= store.first)
        return lambda: (line.data for line in chain(lines, rest) if not line.marked)
