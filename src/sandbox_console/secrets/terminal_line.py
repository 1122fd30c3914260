"""A line of text as a terminal shows it, whose cursor goes back and overwrites what is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from sandbox_console.model.lazy_pattern import lazy_pattern
from sandbox_console.secrets import visible_text
from sandbox_console.secrets.visible_text import (
    COLUMNS_MOST,
    CSI,
    ESC,
    LETTER,
    ONES,
    TAB,
    WIDTHLESS,
    WITHIN,
    View,
    column_after,
    width,
)

_PARAMETERS = rb"[" + WITHIN + rb"0-9;]*"
_STEP = lazy_pattern(
    rb"([\x20-\x7e]+)|" + CSI + rb"(" + _PARAMETERS + rb")([CDGIPXZ`abhlsu@])|" + ESC + rb"|" + WIDTHLESS + rb"|"
    + LETTER + rb"|.",
    re.DOTALL,
)  # fmt: skip
_RETURNS_ONLY = re.compile(rb"[\x20-\x7e\r]*\Z")
_WITHIN_ONE = re.compile(rb"[" + WITHIN + rb"]")
_MODES = lazy_pattern(CSI + rb"[" + WITHIN + rb"0-?]*[hl]|\x1b[" + WITHIN + rb"]*c")
_PLAIN_MODES = lazy_pattern(rb"\x1b(?:\[[0-?]*+[hl]|c)")
"""The same in a terminal's text, where codes have one form: ten times as fast, as it begins with one byte."""
_INSERT = 4  # ECMA-48's insertion-replacement mode
_ROWS = lazy_pattern(rb"\x1b(?:[DEc]|\[\?[0-9;]*7[0-9;]*[hl])")
"""What moves to another row of a line, or changes what the end of a row does."""

_WRAP = lazy_pattern(rb"\x1b\[\?(?:[0-9]*;)*7(?:;[0-9]*)*([hl])\Z")


class Line:
    """A line of a terminal: its cells, the place of each in the text, and the cursor.

    ``columns`` is the terminal's width. A line that is longer goes on in the next row, which its cells contain as well;
    the cursor then stays within its row. With 0, the width is unknown, and the line has no end.
    """

    def __init__(self, columns: int = 0) -> None:
        self.columns = min(columns, COLUMNS_MOST)
        self.cells: list[bytes] = []
        self.places: list[int] = []
        self.column = 0
        """The place of the cursor in the cells. In the last column of a row it may be behind it: see ``_full``."""
        self._full = False  # the last column was written, and the next character goes into the next row
        self._kept, self._inserts, self._wraps = 0, False, True
        self.parted = False
        """Whether it was shown although it may end with the beginning of a value."""

    @property
    def moved(self) -> bool:
        """Whether new text is to be read together with the line: the cursor is not at its end, or a value may be."""
        return self.column < len(self.cells) or self._inserts or not self._wraps or self.parted

    def moves(self, data: bytes) -> bool:
        """Whether text after this line, without newlines, is written elsewhere than behind it."""
        if visible_text.moves(data):
            return True
        if not self.columns:
            return False
        if b"\x1b" in data and _ROWS.search(data):
            return True
        if b"\t" not in data:
            return False
        return self.at + len(data) + (TAB - 1) * data.count(b"\t") >= self.columns  # tabs stop at the edge

    def write(self, data: bytes, offset: int = 0) -> Line:
        """Write text that has no newline; ``offset`` is its place in the whole text."""
        if not (self.columns or self.cells or self.column or self._inserts) and _RETURNS_ONLY.match(data):
            self._write_over(data, offset)
            return self
        for match in _STEP.finditer(data):
            text, place = match[0], offset + match.start()
            if match[1]:
                self._put([ONES[one] for one in text], range(place, place + len(text)))
            elif match[3]:
                self._controls(match[0])
                self._obey(match[3], _number(match[2]))
            elif text[0] > 0x7F:
                if wide := width(text):
                    self._put([text, b""][:wide], [place] * wide)
            else:
                self._control(text)
        return self

    def below(self, data: bytes) -> Line:
        """The line after ``data``, which follows this one and ends with a newline."""
        returned = data.rfind(b"\r\n")
        home = len(data) if not self.columns else returned + 2 if returned >= 0 else 0
        made = self.fresh() if home else self.past()
        if home and b"\x1b" in data:
            for match in (_PLAIN_MODES if self.columns else _MODES).finditer(data, 0, home):
                made.write(match[0])
        for part in data[home:].split(b"\n")[:-1]:
            made.write(part)
            made = made.fresh(made.at)
        return made

    def resized(self, columns: int) -> Line:
        """The line of a terminal whose width has changed, if none of its rows has; else an empty one."""
        made = self.past() if self.fits(columns) else self.fresh()
        made.columns = min(columns, COLUMNS_MOST)
        return made

    def fits(self, columns: int) -> bool:
        """Whether the line is shorter than the terminal is wide, now and with ``columns``."""
        return max(self.column, len(self.cells)) < min(self.columns, columns)

    def past(self) -> Line:
        """The line after all of it was shown: its places lie before the next text."""
        made = self.fresh(self.column)
        made.cells, made.places = self.cells.copy(), [-1] * len(self.cells)
        made._full, made.parted = self._full, self.parted  # noqa: SLF001 - another line
        return made

    def view(self, *, to_cursor: bool = False) -> View:
        """What the line shows; with ``to_cursor``, only up to the cursor."""
        end = self.column if to_cursor else len(self.cells)
        cells = self.cells[:end]
        return View(b"".join(cells), [0, *accumulate(map(len, cells[:-1]))], self.places[:end] or [0])

    # -- the row of the cursor

    def fresh(self, column: int = 0) -> Line:
        """An empty line of the same terminal, with the cursor in a column."""
        made = Line(self.columns)
        made._kept, made._inserts, made._wraps = self._kept, self._inserts, self._wraps
        made.column = column
        return made

    def _row(self) -> int:
        """Where the row of the cursor begins in the cells."""
        return (self.column - self._full) // self.columns * self.columns if self.columns else 0

    @property
    def at(self) -> int:
        """The cursor's column in its row."""
        return self.column - self._full - self._row()

    def _last(self) -> int:
        return self.columns - 1 if self.columns else COLUMNS_MOST

    def _go(self, column: int) -> None:
        row = self._row()
        self._full, self.column = False, row + min(max(0, column), self._last())

    # -- what codes do

    def _write_over(self, data: bytes, offset: int) -> None:
        """Write text that only returns to the line's beginning, as progress bars do."""
        runs, end = [], len(data)
        for text in reversed(data.split(b"\r")):
            runs.append((text, offset + end - len(text)))
            end -= len(text) + 1
        self.column = min(len(runs[0][0]), COLUMNS_MOST)
        for text, place in runs:
            if (done := len(self.cells)) < min(len(text), COLUMNS_MOST):
                self.cells += [ONES[one] for one in text[done:COLUMNS_MOST]]
                self.places += range(place + done, place + min(len(text), COLUMNS_MOST))

    def _controls(self, code: bytes) -> None:
        """Obey the control characters within a code, which come before the code itself."""
        for one in _WITHIN_ONE.findall(code):
            self._control(one)

    def _control(self, text: bytes) -> None:
        match text:
            case b"\x08":
                self._go(self.at - 1)
            case b"\r":
                self._go(0)
            case b"\t":
                self._go((self.at // TAB + 1) * TAB)
            case b"\x1b7":
                self._kept = self.at
            case b"\x1b8":
                self._go(self._kept)
            case _ if len(text) > 1 and text[:1] == b"\x1b":
                self._controls(text)
                if (plain_code := _WITHIN_ONE.sub(b"", text)) != text:
                    self._control(plain_code)
                elif self.columns:
                    self._of_rows(text)

    def _of_rows(self, text: bytes) -> None:
        """Obey a code that moves to another row, or changes what happens at the end of one."""
        if text in (b"\x1bD", b"\x1bE"):
            column = self.at if text == b"\x1bD" else 0
            self.column, self._full = self._row() + self.columns + column, False
        elif text == b"\x1bc":
            self._go(0)
            self._inserts, self._wraps = False, True
        elif wrap := _WRAP.match(text):
            self._wraps = wrap[1] == b"h"

    def _obey(self, how: bytes, number: int) -> None:
        """Obey a code with its first number (0 if it has none)."""
        count, at = max(1, number), self.column - self._full
        end = self._row() + self.columns if self.columns else len(self.cells)
        match how:
            case b"P":
                self._go(self.at)
                self._replace(at, min(at + count, end), end, [])
            case b"X":
                blank = self.cells[at : min(at + count, end)]
                self.cells[at : at + len(blank)] = [b" "] * len(blank)
            case b"@" if at < len(self.cells):
                self._go(self.at)
                self._replace(at, at, end, [b" "] * min(count, COLUMNS_MOST))
            case b"b" if 0 < self.column <= len(self.cells):
                again = min(count, COLUMNS_MOST)
                self._put([self.cells[self.column - 1]] * again, [self.places[self.column - 1]] * again)
            case b"h" | b"l" if number == _INSERT:
                self._inserts = how == b"h"
            case b"s":
                self._kept = self.at
            case b"u":
                self._go(self._kept)
            case b"P" | b"X" | b"@" | b"b" | b"h" | b"l":
                pass
            case _:
                self._go(column_after(self.at, how, count, self._last()))

    def _replace(self, at: int, until: int, end: int, cells: list[bytes], places: Sequence[int] = ()) -> None:
        """Put cells in place of those from ``at`` to ``until``; the rest of the row, up to ``end``, moves along."""
        beside = self.places[min(at, len(self.places) - 1)] if self.places else -1
        fresh = [*cells, *self.cells[until:end]]
        where = [*(places or [beside] * len(cells)), *self.places[until:end]]
        if self.columns:
            size = end - at if len(self.cells) > end else min(end - at, len(fresh))
            blanks = size - len(fresh)
            fresh, where = fresh[:size] + [b" "] * blanks, where[:size] + [beside] * blanks
        self.cells[at:], self.places[at:] = fresh + self.cells[end:], where + self.places[end:]

    def _put(self, cells: list[bytes], places: Sequence[int]) -> None:
        at = 0
        while at < len(cells):
            room = self._room(cells, at) if self.columns else len(cells)
            self._put_within(cells[at : at + room], places[at : at + room])
            at += room
            if self.columns:
                self._full = self.column % self.columns == 0
                at = at if self._wraps or not self._full else max(at, len(cells) - 1)
        self._trim()

    def _room(self, cells: list[bytes], at: int) -> int:
        """How many of the cells from ``at`` on are written into the row, after going to the next one if it is full."""
        wide = cells[at + 1 : at + 2] == [b""]
        if self._full or (wide and self.columns > 1 and self.at == self.columns - 1):
            self._wrap()
        room = self.columns - self.at
        return room - 1 if room > 1 and cells[at + room : at + room + 1] == [b""] else room

    def _wrap(self) -> None:
        if self._wraps:
            self.column, self._full = self._row() + self.columns, False
        else:
            self._go(self.columns - 1)

    def _put_within(self, cells: list[bytes], places: Sequence[int]) -> None:
        """Write characters that the row has room for."""
        gap = self.column - len(self.cells)
        self.cells.extend([b" "] * gap)
        self.places.extend([places[0]] * gap)
        end = self.column + len(cells)
        if self._inserts:
            row_end = self._row() + self.columns if self.columns else len(self.cells)
            self._replace(self.column, self.column, max(row_end, end), cells, places)
        else:
            self.cells[self.column : end] = cells
            self.places[self.column : end] = places
        self.column = end

    def _trim(self) -> None:
        over = len(self.cells) - COLUMNS_MOST  # no terminal is wider: the text would have wrapped
        if self.columns:
            over = min(over // self.columns * self.columns, self._row())
        if over > 0:
            del self.cells[:over], self.places[:over]
            self.column = max(0, self.column - over)


def _number(parameters: bytes) -> int:
    """The first number of a code; 0 if it has none."""
    return int(_WITHIN_ONE.sub(b"", parameters).partition(b";")[0].lstrip(b"0")[:5] or 0)
