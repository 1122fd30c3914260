"""Copy mode: a frozen screen with its scrollback, a cursor that moves over it, a selection and a search.

The guest goes on meanwhile. Keys and meanings are those of tmux's copy mode with vi keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from rich.cells import cell_len as cells

from sandbox_console.tui.widgets.terminal.emulator import Emulator, Matches, Point, Span

Kind = Literal["", "cells", "lines", "block"]

_WORD = re.compile(r"\w+|[^\w\s]+")
_URL = re.compile(r"https?://[^\s<>\"'`\x00-\x1f]+")
_TRAILING = ".,;:!?)]}'\""
_LINKS_MOST = 100


class CopyMode:
    """The state of copy mode in one terminal. ``kind`` is how it selects; empty while it does not."""

    def __init__(self, live: Emulator) -> None:
        self.screen = live.freeze()
        cursor = live.cursor
        self.x, self.y = (cursor.x, self.screen.top + cursor.y) if cursor else (0, self.screen.top)
        self.kind: Kind = ""
        self.wanted = ""
        self.matches: Matches | None = None
        self._anchor: Point = (0, 0)
        self._found: Span | None = None

    def close(self) -> None:
        """Free the frozen screen. Can be called twice."""
        self.matches = None  # it borrows the screen
        self.screen.close()

    @property
    def status_text(self) -> str:
        """Where it is, for the corner of the terminal: the line from the oldest, and the number of the match."""
        here = f"copy {self.y + 1}/{self.screen.total}"
        if self.matches is None:
            return here
        number = f"{self.matches.index}/{self.matches.count}" if self.matches.count else "none"
        return f"{here}  matches {number}"

    # --- moving

    def move_to(self, x: int, y: int) -> None:
        """Move the cursor to a cell, and the viewport so that it is seen."""
        screen = self.screen
        self.y = max(0, min(y, screen.total - 1))
        self.x = max(0, min(x, screen.cols - 1))
        if self.y < screen.top:
            screen.scroll_to(self.y)
        elif self.y >= screen.top + screen.rows:
            screen.scroll_to(self.y - screen.rows + 1)
        screen.refresh()

    def move(self, columns: int, rows: int) -> None:
        """Move the cursor. Left of a line is the end of the one above."""
        if columns and not rows:
            cols = self.screen.cols
            at = max(0, min(self.y * cols + self.x + columns, self.screen.total * cols - 1))
            self.move_to(at % cols, at // cols)
        else:
            self.move_to(self.x, self.y + rows)

    def page(self, pages: float) -> None:
        """Move by a part of the screen's height, as 1, -1 or 0.5."""
        screen, rows = self.screen, int(pages * max(1, self.screen.rows - 1))
        screen.scroll_to(screen.top + rows)
        self.move_to(self.x, self.y + rows)

    def word(self, direction: int) -> None:
        """Move to the start of the next word, or of the one before, also on other lines."""
        for y, start in self._words(direction):
            if (y, start) > (self.y, self.x) if direction > 0 else (y, start) < (self.y, self.x):
                self.move_to(start, y)
                return

    def word_end(self) -> None:
        """Move to the end of the word, or of the next one."""
        for y in range(self.y, min(self.y + self.screen.rows, self.screen.total)):
            for match in _WORD.finditer(text := self._row(y)):
                end = cells(text[: match.end()]) - 1
                if (y, end) > (self.y, self.x):
                    self.move_to(end, y)
                    return

    def _words(self, direction: int) -> Iterator[Point]:
        """Yield the row and column of each start of a word, from the cursor on."""
        end = self.y + direction * self.screen.rows
        for y in range(self.y, max(-1, min(end, self.screen.total)), direction):
            text = self._row(y)
            starts = [cells(text[: match.start()]) for match in _WORD.finditer(text)]
            yield from ((y, start) for start in starts[::direction])

    def line_end(self) -> None:
        """Move behind the last character of the line."""
        self.move_to(cells(self._row(self.y)) - 1, self.y)

    def _row(self, y: int) -> str:
        return self.screen.text_between(Span((0, y), (self.screen.cols - 1, y))).split("\n")[0]

    # --- the selection

    def select(self, kind: Kind) -> None:
        """Begin a selection at the cursor, change how it selects, or end it if it already selects so."""
        if not self.kind:
            self._anchor = (self.x, self.y)
        self.kind = "" if kind == self.kind else kind

    def select_from(self, anchor: Point) -> None:
        """Select the cells from an anchor to the cursor."""
        self._anchor, self.kind = anchor, "cells"

    def select_word(self, at: Point) -> None:
        """Select the word at a cell."""
        if (span := self.screen.word_at(at)) is not None:
            self.select_from(span.start)
            self.move_to(*span.end)

    def other_end(self) -> None:
        """Move the cursor to the other end of the selection."""
        if self.kind:
            self._anchor, (x, y) = (self.x, self.y), self._anchor
            self.move_to(x, y)

    @property
    def selection(self) -> Span | None:
        """The selected cells, in order; of a block, its corners."""
        if not self.kind:
            return None
        start, end = sorted([self._anchor, (self.x, self.y)], key=lambda one: (one[1], one[0]))
        if self.kind == "lines":
            return Span((0, start[1]), (self.screen.cols - 1, end[1]))
        if self.kind == "block":
            left, right = sorted([start[0], end[0]])
            return Span((left, start[1]), (right, end[1]))
        return Span(start, end)

    @property
    def text(self) -> str:
        """The selected text, or the cursor's line without a selection. No line has trailing blanks."""
        span = self.selection or Span((0, self.y), (self.screen.cols - 1, self.y))
        found = self.screen.text_between(span, block=self.kind == "block")
        return "\n".join(line.rstrip() for line in found.split("\n"))

    def selected_in(self, y: int) -> tuple[int, int] | None:
        """Return the selected columns of a row, the end excluded."""
        span = self.selection
        if span is None or not span.start[1] <= y <= span.end[1]:
            return None
        if self.kind == "block":
            return span.start[0], span.end[0] + 1
        start = span.start[0] if y == span.start[1] else 0
        end = span.end[0] + 1 if y == span.end[1] else self.screen.cols
        return start, end

    # --- search

    def search(self, wanted: str) -> None:
        """Look for a text, ignoring case, and go to the nearest match above the end."""
        self.wanted = wanted
        self.matches = self.screen.search(wanted) if wanted else None
        self._found = None
        self.next_match(-1)

    def next_match(self, direction: int) -> None:
        """Go to the next match towards older lines (-1) or newer ones (1)."""
        if self.matches is not None and (span := self.matches.step(direction)) is not None:
            self._found = span
            self.move_to(*span.start)

    def matches_in(self, y: int, text: str) -> Iterator[tuple[int, int]]:
        """Yield the columns of the matches in a row that is shown, the end excluded."""
        if self._found is not None and self._found.start[1] <= y <= self._found.end[1]:
            first = self._found.start[0] if y == self._found.start[1] else 0
            yield first, self._found.end[0] + 1 if y == self._found.end[1] else self.screen.cols
        if self.matches is not None and self.wanted:
            for match in re.finditer(re.escape(self.wanted), text, re.IGNORECASE):
                yield cells(text[: match.start()]), cells(text[: match.end()])

    # --- links

    def links(self) -> list[str]:
        """Return the addresses on the screen, each once: those that the guest has set (OSC 8), and plain ones."""
        found: dict[str, None] = {}
        screen = self.screen
        for y in range(screen.top, min(screen.top + screen.rows, screen.total)):
            for x in range(screen.cols):
                if link := screen.link_at((x, y)):
                    found[link] = None
        text = screen.text_between(
            Span((0, screen.top), (screen.cols - 1, min(screen.top + screen.rows, screen.total) - 1))
        )
        found |= dict.fromkeys(plain_links(text))
        return [*found][:_LINKS_MOST]

    def link_at(self, x: int, y: int) -> str:
        """Return the address at a cell, or an empty string."""
        if link := self.screen.link_at((x, y)):
            return link
        text = self._row(y)
        for match in _URL.finditer(text):
            if cells(text[: match.start()]) <= x < cells(text[: match.end()]):
                return match.group().rstrip(_TRAILING)
        return ""


def plain_links(text: str) -> Iterator[str]:
    """Yield the http addresses in a text, without the punctuation after them."""
    return (match.group().rstrip(_TRAILING) for match in _URL.finditer(text))
