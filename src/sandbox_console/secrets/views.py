"""Output as a reader sees it, each byte with its place in what was written: a value may be broken up by what is unseen.

Two views: ``unseen`` is left out, as in a log that a viewer shows; and a line whose cursor goes back is written as a
terminal writes it, over what stood there. Programs that draw a whole screen place by place are not followed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

CODE_MOST = 4096
"""Bytes of the longest code that is followed across chunks; an OSC or DCS may hold a text."""

# ECMA-48: CSI, then the strings OSC, DCS, SOS, PM and APC with their text, then two-byte and three-byte codes.
_ESC = rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[ -/]*[0-Z\\-~])"
# CSI as one character (in UTF-8), and what has no width: soft hyphen, joiners, direction marks, selectors, tags.
_WIDTHLESS = (
    rb"\xc2\x9b[0-?]*[ -/]*[@-~]|\xc2[\x80-\x9f\xad]|\xcd\x8f|\xd8\x9c|\xe1\xa0[\x8b-\x8f]|\xe1\x85[\x9f\xa0]"
    rb"|\xe1\x9e[\xb4\xb5]|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xe3\x85\xa4|\xef\xb8[\x80-\x8f]"
    rb"|\xef\xbb\xbf|\xef\xbe\xa0|\xef\xbf[\xb0-\xbb]|\xf3\xa0[\x80-\x87][\x80-\xbf]"
)
_CODE = re.compile(_ESC)
_LONE = rb"\r(?!\n)"
_UNSEEN = re.compile(rb"(?:" + _ESC + rb"|[\x00-\x08\x0e-\x1f\x7f]|" + _LONE + rb"|" + _WIDTHLESS + rb")+")
_CONTROLS = [bytes([one]) for one in (*range(8), 8, *range(14, 27), *range(28, 32), 127)]  # but ESC and CR
_WIDE = re.compile(_WIDTHLESS)
_LEADS = tuple(bytes([one]) for one in (0xC2, 0xCD, 0xD8, 0xE1, 0xE2, 0xE3, 0xEF, 0xF3))
# How a code may begin that has not all come.
_BEGUN = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]{0,4096}\x1b?|[ -/]*)?|\xc2(?:\x9b[0-?]*[ -/]*)?"
    rb"|\xcd|\xd8|\xe1[\x85\x9e\xa0]?|\xe2[\x80\x81]?|\xe3\x85?|\xef[\xb8\xbb\xbe\xbf]?|\xf3(?:\xa0[\x80-\x87]?)?)\Z"
)
_USUAL = [b"\x08", b"\0", b"\x07", b"\x0e", b"\x0f", b"\x7f"]
_SMALL = (
    4096  # bytes; in more, each further control that is looked for takes 2 % of the speed, and no program writes them
)
_RETURN = re.compile(_LONE)
_MOVE = re.compile(rb"\x1b\[[0-9;]*[CDG`]")
_STEP = re.compile(
    rb"([\x20-\x7e]+)|\x1b\[([0-9]*)[0-9;]*([CDG`])|" + _ESC + rb"|" + _WIDTHLESS + rb"|[\xc0-\xff][\x80-\xbf]*|.",
    re.DOTALL,
)
_ONES = [bytes([one]) for one in range(256)]
_COLUMNS_MOST = 4096  # a cursor that is sent further stays here: no terminal is wider


class View:
    """Some of the bytes of a text: ``data``, and where each of them stands in it."""

    def __init__(self, data: bytes, starts: Sequence[int], places: Sequence[int]) -> None:
        self.data, self._starts, self._places = data, starts, places

    def place(self, at: int) -> int:
        """Where byte ``at`` of the view stands in the text."""
        piece = bisect_right(self._starts, at) - 1
        return self._places[piece] + at - self._starts[piece]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """From the first to behind the last byte of the text that ``start`` to ``end`` of the view come from."""
        first, last = bisect_right(self._starts, start) - 1, bisect_right(self._starts, end - 1) - 1
        begin = min((self.place(start), *self._places[first + 1 : last + 1]))
        size = self._starts
        ends = (self._places[piece] + size[piece + 1] - size[piece] for piece in range(first, last))
        return begin, max((self.place(end - 1) + 1, *ends))


def plain(data: bytes) -> bool:
    """Whether every reader sees the bytes as they are: nothing is unseen and no cursor goes back. Fast."""
    for one in _CONTROLS if len(data) <= _SMALL else _USUAL:
        if one in data:
            return False
    if b"\x1b" in data or _returns(data):
        return False
    if data.isascii():
        return True
    return not (any(lead in data for lead in _LEADS) and (_WIDE.search(data) or begun(data)))


def moves(data: bytes) -> bool:
    """Whether a cursor goes to another place of its line."""
    return b"\x08" in data or _returns(data) or (b"\x1b" in data and _MOVE.search(data) is not None)


def _returns(data: bytes) -> bool:
    """Whether the cursor goes to the line's beginning, and not on to the next one."""
    return b"\r" in data and _RETURN.search(data) is not None


def seen(data: bytes) -> View:
    """Without what is unseen."""
    few = data.isascii() and not _returns(data) and not any(one in data for one in _CONTROLS)
    pieces, places, at = [], [], 0
    for match in (_CODE if few else _UNSEEN).finditer(data):
        start, end = match.span()
        if start > at:
            pieces.append(data[at:start])
            places.append(at)
        at = end
    if at < len(data) or not pieces:
        pieces.append(data[at:])
        places.append(at)
    return View(b"".join(pieces), [0, *accumulate(map(len, pieces[:-1]))], places)


class Line:
    """A terminal's line: its cells, the place of each in the text, and where the cursor stands."""

    def __init__(self) -> None:
        self.cells: list[bytes] = []
        self.places: list[int] = []
        self.column = 0

    @property
    def moved(self) -> bool:
        """Whether the cursor is not behind all that stands there."""
        return self.column < len(self.cells)

    def write(self, data: bytes, offset: int = 0) -> Line:
        """Write what has no newline in it; ``offset`` is where it stands in the text."""
        for match in _STEP.finditer(data):
            text, place = match[0], offset + match.start()
            if match[1]:
                self._put([_ONES[one] for one in text], range(place, place + len(text)))
            elif match[3]:
                self.column = _moved(self.column, match[3], int(match[2][:5] or 1))
            elif text == b"\x08":
                self.column = max(0, self.column - 1)
            elif text == b"\r":
                self.column = 0
            elif text[0] > 0x7F and not _WIDE.fullmatch(text):
                self._put([text], [place])
        return self

    def _put(self, cells: list[bytes], places: Sequence[int]) -> None:
        gap = self.column - len(self.cells)
        self.cells.extend([b" "] * gap)
        self.places.extend([places[0]] * gap)
        end = self.column + len(cells)
        self.cells[self.column : end] = cells
        self.places[self.column : end] = places
        self.column = end
        if (over := len(self.cells) - _COLUMNS_MOST) > 0:  # no terminal is wider: it would have begun another line
            del self.cells[:over], self.places[:over]
            self.column = max(0, self.column - over)

    def past(self) -> Line:
        """The same line, all of it already shown: its places are before the text that comes."""
        made = Line()
        made.cells, made.places, made.column = self.cells.copy(), [-1] * len(self.cells), self.column
        return made

    def view(self, *, to_cursor: bool = False) -> View:
        """What stands in it; with ``to_cursor`` only what is before the cursor."""
        end = self.column if to_cursor else len(self.cells)
        cells = self.cells[:end]
        return View(b"".join(cells), [0, *accumulate(map(len, cells[:-1]))], self.places[:end] or [0])


def begun(data: bytes) -> int:
    """How many of the last bytes may be the beginning of a code."""
    at = data.find(b"\x1b", max(0, len(data) - CODE_MOST))
    match = _BEGUN.search(data, at if at >= 0 else max(0, len(data) - 64))
    return len(data) - match.start() if match else 0


def _moved(column: int, how: bytes, count: int) -> int:
    match how:
        case b"C":
            column += max(1, count)
        case b"D":
            column -= max(1, count)
        case _:
            column = count - 1
    return min(max(0, column), _COLUMNS_MOST)
