"""The alternate screen of a terminal of a known size, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from sandbox_console.secrets.screen_cells import Cells, Values, starred
from sandbox_console.secrets.visible_text import column_after, width

_MOST = 1000
"""Columns and rows; larger terminals count as this large."""


class Rows:
    """Rows, a cursor and a scrolling region, as in ECMA-48 and xterm's ctlseqs, without margins left and right."""

    def __init__(self, values: Values, star: bytes, size: tuple[int, int]) -> None:
        self._values, self._star = values, star
        self._width, self._height = (min(max(1, one), _MOST) for one in size)
        self._kept = (0, 0)
        self.begin()
        self._rows = [self._blank() for _ in range(self._height)]

    def begin(self) -> None:
        """Go home, without a region, with the usual modes."""
        self.column = self._row = 0
        self._top, self._bottom = 0, self._height - 1
        self._inserts, self._wraps = False, True

    def drawn(self) -> list[bytes]:
        """The text of each row."""
        return [b"".join(row).rstrip() for row in self._rows]

    def put(self, cells: Cells, text: bytes) -> Cells:  # noqa: ARG002 - as the other page
        """Write characters, which are ``text`` in bytes. Returns what may be shown of them."""
        done: list[bytes] = []
        while cells:
            if self.column >= self._width or (
                self._width > 1 and self.column == self._width - 1 and cells[1:2] == [b""]
            ):
                self._wrap()
            size = min(self._width - self.column, len(cells))
            size -= size > 1 and size < len(cells) and cells[size] == b""  # a wide one goes into the next row
            done += self._write(cells[:size])
            cells = cells[size:]
        return done

    def shift(self, how: int, count: int) -> bool:
        """Delete, insert, erase within the row. Returns False, without doing it, if a value would be completed."""
        at = self.column = min(self.column, self._width - 1)
        row = self._rows[self._row]
        match chr(how):
            case "P":
                fresh = row[:at] + row[at + max(1, count) :]
            case "@":
                fresh = row[:at] + [b" "] * max(1, min(count, self._width)) + row[at:]
            case "X":
                fresh = row[:at] + [b" "] * min(max(1, count), self._width - at) + row[at + max(1, count) :]
            case _:
                fresh = [*([b" "] * (at + 1) + row[at + 1 :] if count == 1 else row[:at] if count == 0 else [])]
        fresh = (fresh + self._blank())[: self._width]
        fresh = _without_halves(fresh) if b"" in row else fresh
        if self._values.hits(b"".join(fresh)):
            return False
        self._rows[self._row] = fresh
        return True

    def vertical(self, how: bytes, numbers: Sequence[int]) -> None:
        """Obey a code that moves the cursor or the rows."""
        count = max(1, numbers[0])
        self.column = min(self.column, self._width - 1)
        match how:
            case b"A" | b"F" | b"k" | b"B" | b"E" | b"e":
                self._step(-count if how in (b"A", b"F", b"k") else count, home=how in (b"E", b"F"), free=how == b"e")
            case b"H" | b"f":
                self._go(numbers[0], max(1, [*numbers, 0][1]) - 1)
            case b"d":
                self._go(numbers[0], self.column)
            case b"\n" | b"\x0b" | b"\x1bD" | b"\x1bE":
                self._feed()
                self.column = 0 if how == b"\x1bE" else self.column
            case b"\x1bM" | b"S" | b"T" | b"L" | b"M":
                self._scrolled(how, count)
            case b"r":
                bottom = min([*numbers, 0][1] or self._height, self._height)
                if count < bottom:
                    self._top, self._bottom = count - 1, bottom - 1
                    self._go(1, 0)
            case b"s":
                self._kept = self._row, self.column
            case b"u":
                self._row, self.column = min(self._kept[0], self._height - 1), min(self._kept[1], self._width - 1)
            case _:
                self._other(how, numbers)

    def wipe(self) -> None:
        """Erase the whole screen."""
        self._rows = [self._blank() for _ in range(self._height)]

    def _other(self, how: bytes, numbers: Sequence[int]) -> None:
        match how:
            case b"J":
                self._erase(numbers[0])
            case b"h" | b"l" if numbers[0] == 4:
                self._inserts = how == b"h"
            case b"?h" | b"?l" if numbers[0] == 7:
                self._wraps = how == b"?h"
            case b"?l" if numbers[0] == 6:
                self._go(1, 0)
            case b"\x1bc" | b"\x1b#8":
                self.wipe()
                self._row = self.column = 0
                self._top, self._bottom = 0, self._height - 1
            case _:
                self.column = column_after(self.column, how, numbers[0], self._width - 1)

    def _write(self, cells: Cells) -> Cells:
        """Write within the row."""
        fresh = self._with(cells)
        if hits := self._values.hits(b"".join(fresh)):
            starts = [0, *accumulate(map(len, fresh))]
            hidden = [
                at - self.column
                for at in range(self.column, self.column + len(cells))
                if any(start < starts[at + 1] and starts[at] < end for start, end in hits)
            ]
            cells = starred(cells, hidden, self._star)
            fresh = self._with(cells)
        self._rows[self._row] = fresh
        self.column += len(cells)
        return cells

    def _with(self, cells: Cells) -> list[bytes]:
        row, end = self._rows[self._row], self.column + len(cells)
        before, after = row[: self.column], row[self.column if self._inserts else end :]
        if after[:1] == [b""]:  # half of a wide one is left
            after[0] = b" "
        if self.column < len(row) and row[self.column] == b"" and before:
            before[-1] = b" "
        return (before + list(cells) + after)[: self._width]

    def _blank(self) -> list[bytes]:
        return [b" "] * self._width

    def _wrap(self) -> None:
        if self._wraps:
            self.column = 0
            self._feed()
        else:
            self.column = self._width - 1

    def _feed(self) -> None:
        if self._row == self._bottom:
            self._roll(self._top, 1)
        else:
            self._row = min(self._row + 1, self._height - 1)

    def _step(self, by: int, *, home: bool, free: bool) -> None:
        top = self._top if self._row >= self._top else 0
        bottom = self._bottom if self._row <= self._bottom and not free else self._height - 1
        self._row = min(max(self._row + by, top), bottom)
        self.column = 0 if home else self.column

    def _go(self, row: int, column: int) -> None:
        self._row, self.column = min(max(1, row), self._height) - 1, min(column, self._width - 1)

    def _scrolled(self, how: bytes, count: int) -> None:
        within = self._top <= self._row <= self._bottom
        if how == b"\x1bM":
            if self._row == self._top:
                self._roll(self._top, -1)
            else:
                self._row = max(0, self._row - 1)
        elif how in (b"S", b"T"):
            self._roll(self._top, count if how == b"S" else -count)
        elif within:
            self._roll(self._row, count if how == b"M" else -count)
            self.column = 0

    def _roll(self, top: int, by: int) -> None:
        """Move the rows from ``top`` to the end of the region up, or down by a negative number."""
        rows, size = self._rows[top : self._bottom + 1], self._bottom + 1 - top
        blanks = [self._blank() for _ in range(min(abs(by), size))]
        self._rows[top : self._bottom + 1] = (rows[by:] + blanks if by > 0 else blanks + rows[:by])[:size]

    def _erase(self, how: int) -> None:
        if how in (0, 1):
            self.shift(ord("K"), how)
            gone = range(self._row + 1, self._height) if how == 0 else range(self._row)
            for at in gone:
                self._rows[at] = self._blank()


def _without_halves(row: list[bytes]) -> list[bytes]:
    """The row with a blank in place of each half of a wide character whose other half is gone."""
    done = list(row)
    for at, cell in enumerate(row):
        if cell == b"":
            done[at] = cell if at and len(row[at - 1]) > 1 and width(row[at - 1]) == 2 else b" "
        elif len(cell) > 1 and width(cell) == 2 and row[at + 1 : at + 2] != [b""]:
            done[at] = b" "
    return done
