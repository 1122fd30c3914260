"""The lines that a log view scrolls through: all of a store, or those that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from time import perf_counter
from typing import NamedTuple

from sandbox_console.logs.index import LineIndex
from sandbox_console.logs.pattern import compile_pattern
from sandbox_console.logs.store import Line, LineStore


class Patterns(NamedTuple):
    """What is searched and what is filtered by, as it was typed."""

    search: str | None = None
    filter: str | None = None


class ShownLines:
    """Rows 0.. over a store; a row is a line's place among those shown, a number is the line's own."""

    def __init__(self, store: LineStore) -> None:
        self.store = store
        self.filter: LineIndex | None = None
        self.search: LineIndex | None = None

    @property
    def patterns(self) -> Patterns:
        """The search and the filter that are on."""
        search, found = (one.pattern.text if one is not None else None for one in (self.search, self.filter))
        return Patterns(search, found)

    def use(self, store: LineStore, patterns: Patterns) -> None:
        """Show another store, by its own search and filter."""
        self.store = store
        self.set_search(patterns.search)
        self.set_filter(patterns.filter)

    def set_filter(self, pattern: str | None) -> None:
        """Let through only what matches; ``!`` before it turns it round. Raises UsageError."""
        self.filter = LineIndex(self.store, compile_pattern(pattern, invertible=True)) if pattern else None

    def set_search(self, pattern: str | None) -> None:
        """Look for a pattern. Raises UsageError."""
        self.search = LineIndex(self.store, compile_pattern(pattern)) if pattern else None

    def forget(self) -> None:
        """Let go of lines that the store has dropped."""
        for index in (self.filter, self.search):
            if index is not None:
                index.forget()

    def scan(self, budget_s: float, clock: Callable[[], float] = perf_counter) -> bool:
        """Look through new lines for about ``budget_s``; whether that was all."""
        until = clock() + budget_s
        for index in (self.filter, self.search):
            for _ in index.advance() if index is not None else ():
                if clock() > until:
                    return False
        return True

    @property
    def looked_through(self) -> float:
        """How much has been looked through by the filter and the search, from 0 to 1."""
        return min((index.share for index in (self.filter, self.search) if index is not None), default=1.0)

    @property
    def shown(self) -> int:
        """How many lines there are to scroll through."""
        return self.total if self.filter is None else len(self.filter)

    @property
    def total(self) -> int:
        """How many lines there are, filtered or not."""
        return len(self.store) + len(self.store.partials())

    def line_at(self, row: int) -> Line:
        """The line of a row."""
        if self.filter is not None:
            return self.filter.line_at(row)
        if row < len(self.store):
            return self.store.line(self.store.first + row)
        return self.store.partials()[row - len(self.store)]

    def row_of(self, number: int) -> int:
        """The row of a line, or of the next one shown past it."""
        return max(0, number - self.store.first) if self.filter is None else self.filter.row_of(number)

    def raw(self) -> Callable[[], Iterator[bytes]]:
        """Gives, also in a thread, the bytes of what is shown now as the sandbox wrote them; no marks of the reader."""
        store = self.store.frozen()
        if self.filter is None:
            return store.raw
        numbers, rest = self.filter.lines[:], self.filter.open
        lines = (store.line(number) for number in numbers if number >= store.first)
        return lambda: (line.data for line in chain(lines, rest) if not line.marked)
