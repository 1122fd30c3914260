"""What was written in each column of a screen whose rows are unknown."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_console.secrets.screen_cells import Cells, Form, Values, starred
from sandbox_console.secrets.visible_text import COLUMNS_MOST, column_after

_PASSED_MOST = 4096
_ALL = (1 << COLUMNS_MOST) - 1


class Columns:
    """For each character of the values, the columns in which it was written in any row, as the bits of a number.

    A value may be somewhere if each of its characters was written in a column and the next one in the next column. That
    is an AND for each character, of about 0.1 microseconds for 4,096 columns.
    """

    def __init__(self, values: Values, star: bytes, width: int = 0) -> None:
        """``width`` is that of the terminal: text goes on at the left edge. With 0, nobody knows it."""
        self._values, self._star = values, star
        self._width = min(width, COLUMNS_MOST)
        self._wraps = True
        self._known: object = None
        self._forms: list[tuple[Form, frozenset[bytes]]] = []
        self._used: frozenset[bytes] = frozenset()
        self.column = self._kept = 0
        self._inserts = False
        self._where: dict[bytes, int] = {}
        self._passed: set[tuple[int, bytes]] = set()  # what was written since the screen was erased

    def resize(self, width: int) -> None:
        """Follow a new width. The caller sends the cursor to the left edge where it may be elsewhere."""
        self._width = min(width, COLUMNS_MOST)
        self._passed.clear()

    def put(self, cells: Cells, text: bytes) -> Cells:
        """Write characters, which are ``text`` in bytes. Returns what may be shown of them."""
        if not self._width or self.column + len(cells) <= self._width:
            return self._put_within(cells, text)
        done: list[bytes] = []
        while cells:
            if self.column >= self._width or (cells[1:2] == [b""] and 1 < self._width == self.column + 1):
                self.column = 0 if self._wraps else self._width - 1
            room = self._width - self.column
            room -= 1 < room < len(cells) and cells[room] == b""
            done += self._put_within(cells[:room], b"".join(cells[:room]) if text else b"")
            cells = cells[room:]
        return done

    def _put_within(self, cells: Cells, text: bytes) -> Cells:
        """Write characters that the row has room for."""
        self._learn()
        if not self._inserts and text and (self.column, text) in self._passed:  # a screen that is drawn again
            self.column += len(cells)
            return cells
        begun = self.column, text
        if self.column + len(cells) > COLUMNS_MOST:
            self.column = max(0, COLUMNS_MOST - len(cells))
            cells = cells[-COLUMNS_MOST:] if len(cells) > COLUMNS_MOST else cells
        base = self._shifted(self.column, len(cells)) if self._inserts else self._where
        added = self._added(base, cells)
        hidden: set[int] = set()
        while added and (found := self._completed(base | added, set(added)) & self._span(cells)):
            hidden |= {at for at in range(len(cells)) if found >> (self.column + at) & 1}
            cells = starred(cells, hidden, self._star)
            added = self._added(base, cells)
        self._where = base | added
        self.column += len(cells)
        if not hidden and len(self._passed) < _PASSED_MOST:
            self._passed.add(begun)
        return cells

    def shift(self, how: int, count: int) -> bool:
        """Delete, insert, erase within the row. Returns False, without doing it, if a value would be completed."""
        if how not in b"P@":
            return True
        where = self._shifted(self.column, max(1, count) * (1 if how == ord("@") else -1))
        if self._completed(where, set(where)):
            return False
        self._where = where
        return True

    def vertical(self, how: bytes, numbers: Sequence[int]) -> None:
        """Obey a code that moves the cursor or the rows: only the column matters."""
        most = (self._width or COLUMNS_MOST) - 1
        self.column = min(self.column, most)
        match how:
            case b"\n" if self._width:
                pass  # a terminal's line feed alone stays in its column
            case b"?h" | b"?l" if numbers[0] == 7:
                self._wraps = how == b"?h"
            case b"H" | b"f":
                self.column = min(max(1, [*numbers, 0][1]) - 1, most)
            case b"E" | b"F" | b"L" | b"M" | b"r" | b"\n" | b"\x1bE" | b"?h" | b"?l":
                # mode 6 moves the cursor home; other modes do not, but programs move it at once
                self.column = 0 if how[:1] != b"?" or numbers[0] == 6 else self.column
            case b"s":
                self._kept = self.column
            case b"u":
                self.column = self._kept
            case b"h" | b"l" if numbers[0] == 4:
                self._inserts = how == b"h"
            case b"\x1bc" | b"\x1b#8":
                self.wipe()
                self.column = 0
            case _:
                self.column = column_after(self.column, how, numbers[0], most)

    def wipe(self) -> None:
        """Erase the whole screen."""
        self._where = {}
        self._passed.clear()

    def _learn(self) -> None:
        """Take over values that were added meanwhile."""
        if (known := self._values.cells()) is not self._known:
            self._known = known
            self._passed.clear()
            self._forms = [(form, frozenset(cell for cell, _ in form)) for form in known]
            self._used = frozenset(cell for _, used in self._forms for cell in used)

    def _added(self, base: dict[bytes, int], cells: Cells) -> dict[bytes, int]:
        """The columns of the characters that matter and were not yet in all of these columns."""
        found: dict[bytes, int] = {}
        for at, cell in enumerate(cells, self.column):
            if cell in self._used:
                have = found.get(cell) or base.get(cell, 0)
                if not have >> at & 1:
                    found[cell] = have | 1 << at
        return found

    def _span(self, cells: Cells) -> int:
        return ((1 << len(cells)) - 1) << self.column

    def _shifted(self, column: int, by: int) -> dict[bytes, int]:
        """What is where once the rest of a row has moved: the row is unknown, so it is at both places."""
        right = _ALL >> column << column
        return {
            cell: bits | ((bits & right) << by if by > 0 else (bits & right) >> -by) & right & _ALL
            for cell, bits in self._where.items()
        }

    def _completed(self, where: dict[bytes, int], fresh: set[bytes]) -> int:
        """The columns of all values that may be there and have one of the fresh characters."""
        columns = 0
        for form, used in self._forms:
            if used.isdisjoint(fresh):
                continue
            starts = _ALL
            for cell, offset in form:
                # a column in which nothing was written is blank
                starts &= (where.get(cell, 0) if cell != b" " else _ALL) >> offset
                if not starts:
                    break
            if starts:
                columns |= _widened(starts, form[-1][1] + 1)
        return columns


def _widened(starts: int, size: int) -> int:
    """The bits of ``size`` columns from each start."""
    done, have = starts, 1
    while have < size:
        step = min(have, size - have)
        done |= done << step
        have += step
    return done
