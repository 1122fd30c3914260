"""Output as a reader sees it, with the original place of each byte, as invisible codes may break up a value.

``seen`` leaves invisible codes out, as a log viewer does. See also `terminal_line`, for a cursor that goes back.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from sandbox_console.model.lazy_pattern import lazy_pattern

CODE_MOST = 4096
"""The longest run of codes, in bytes, that is followed across chunks."""

STRING_MOST = 128 * 1024
"""The longest control string, in bytes, that is followed across chunks: an OSC or DCS may contain text."""

# As in a terminal's parser (ECMA-48; DEC's is described in vt100.net/emu/dec_ansi_parser), a control character within a
# code is obeyed at once, CAN and SUB end a code without effect, and ESC begins another one.
WITHIN = rb"\x00-\x09\x0b-\x17\x19\x1c-\x1f\x7f"
_REST = rb"[" + WITHIN + rb" -?]*"
_CUT = rb"[\x18\x1a]|(?=\x1b)"
# CSI, then the strings OSC, DCS, SOS, PM and APC with their text, then two-byte and three-byte codes, then ESC alone.
ESC = (
    rb"\x1b[" + WITHIN + rb"]*(?:\[" + _REST + rb"(?:[@-~]|" + _CUT + rb")"
    rb"|\][^\x07\x18\x1a\x1b\n]{0,4096}(?:\x07|\x1b\\|" + _CUT + rb")"
    rb"|[PX^_][^\x18\x1a\x1b\n]{0,4096}(?:\x1b\\|" + _CUT + rb")"
    rb"|[ -/][" + WITHIN + rb" -/]*(?:[0-~]|" + _CUT + rb")|[0-Z\\-~\x18\x1a])?"
)  # fmt: skip
# CSI as one character (in UTF-8), and characters without width: soft hyphen, joiners, direction marks, selectors, tags,
# and marks over, under or through the letter before them, which stays readable.
WIDTHLESS = (
    rb"\xc2\x9b"
    + _REST
    + rb"(?:[@-~]|"
    + _CUT
    + rb")|\xc2[\x80-\x9f\xad]|\xcc[\x80-\xbf]|\xcd[\x80-\xaf]|\xd8\x9c|\xe1\xa0[\x8b-\x8f]|\xe1\x85[\x9f\xa0]"
    rb"|\xe1\xaa[\xb0-\xbf]|\xe1\xab[\x80-\xbf]|\xe1\xb7[\x80-\xbf]|\xe2\x83[\x90-\xb0]|\xef\xb8[\xa0-\xaf]"
    rb"|\xe1\x9e[\xb4\xb5]|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xe3\x85\xa4|\xef\xb8[\x80-\x8f]"
    rb"|\xef\xbb\xbf|\xef\xbe\xa0|\xef\xbf[\xb0-\xbb]|\xf0\x9b\xb2[\xa0-\xa3]"
    rb"|\xf0\x9d\x85[\xb3-\xba]|\xf3\xa0[\x80-\x87][\x80-\xbf]"
)
# Most terminals end DCS, SOS, PM and APC only with ST; some programs also end them with BEL, as an OSC.
BEL_ENDS = lazy_pattern(rb"\x1b[PX^_][^\x07\x18\x1a\x1b\n]{0,4096}\x07")
_CODE = lazy_pattern(ESC)
_BACK = lazy_pattern(rb"(\x08|" + ESC + rb")")
_COLOURS = lazy_pattern(rb"\x1b\[[0-9;:]*[mK]")  # and erasing to the end of the line: nearly all codes in logs
_LONE = rb"\r(?!\n)"
_UNSEEN_TEXT = rb"(?:" + ESC + rb"|[\x00-\x08\x0e-\x1f\x7f]|" + _LONE + rb"|" + WIDTHLESS + rb")+"
_UNSEEN = lazy_pattern(_UNSEEN_TEXT)
_CONTROLS = [bytes([one]) for one in (*range(8), 8, *range(14, 27), *range(28, 32), 127)]  # except ESC and CR
_IDLE = b"".join(one for one in _CONTROLS if one != b"\b") + b"\x0b\x0c"
_WIDE = lazy_pattern(WIDTHLESS)
_LEADS = tuple(bytes([one]) for one in (0xC2, 0xCC, 0xCD, 0xD8, 0xE1, 0xE2, 0xE3, 0xEF, 0xF0, 0xF3))
# The beginning of a code that is not complete yet.
_BEGUN = lazy_pattern(
    rb"(?:\x1b[" + WITHIN + rb"]*(?:\[" + _REST + rb"|\][^\x07\x18\x1a\x1b\n]*\x1b?"
    rb"|[PX^_][^\x18\x1a\x1b\n]*\x1b?|[ -/][" + WITHIN + rb" -/]*)?"
    rb"|\xc2(?:\x9b" + _REST + rb"|\x9d[^\x07\x18\x1a\x1b\n]*\x1b?|[\x90\x98\x9e\x9f][^\x18\x1a\x1b\n]*\x1b?)?"
    rb"|\xcc|\xcd|\xd8|\xe1[\x85\x9e\xa0\xaa\xab\xb7]?|\xe2[\x80\x81\x83]?|\xe3\x85?|\xef[\xb8\xbb\xbe\xbf]?"
    rb"|\xf0(?:\x9b\xb2?|\x9d\x85?)?|\xf3(?:\xa0[\x80-\x87]?)?)\Z"
)
_C1_STRING = lazy_pattern(rb"\xc2[\x90\x98\x9d\x9e\x9f]")
_ENDS = (b"\n", b"\x07", b"\x18", b"\x1a", b"\x1b")
_RETURN = re.compile(_LONE)
CSI = rb"(?:\x1b[" + WITHIN + rb"]*\[|\xc2\x9b)"
_PARAMETERS = rb"[" + WITHIN + rb"0-9;]*"
# The codes of ECMA-48 that move within a line, insert, delete, erase and repeat, and that save and restore the column.
_MOVE = lazy_pattern(
    rb"\x1b[" + WITHIN + rb"]*(?:\[" + _PARAMETERS + rb"[CDGIPXZ`abhlsu@]|[78])"
)  # separate from the next one: a single first byte is found fast
_WIDE_MOVE = lazy_pattern(rb"\xc2\x9b" + _PARAMETERS + rb"[CDGIPXZ`abhlsu@]")
# One character, or what a decoder replaces as one broken character (Unicode 15, table 3-7 and D93b: the longest
# prefix).
LETTER = (
    rb"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]?|[\xe1-\xec\xee\xef][\x80-\xbf]{1,2}|\xed[\x80-\x9f][\x80-\xbf]?"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{0,2}|[\xf1-\xf3][\x80-\xbf]{1,3}|\xf4[\x80-\x8f][\x80-\xbf]{0,2}"
)
_TORN = lazy_pattern(rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z")
ONES = [bytes([one]) for one in range(256)]
COLUMNS_MOST = 4096  # a cursor cannot go further: no terminal is wider
TAB = 8


class View:
    """Some of the bytes of a text: ``data``, and the place of each byte in the text."""

    def __init__(self, data: bytes, starts: Sequence[int], places: Sequence[int]) -> None:
        self.data, self._starts, self._places = data, starts, places

    def place(self, at: int) -> int:
        """The place in the text of byte ``at`` of the view."""
        piece = bisect_right(self._starts, at) - 1
        return self._places[piece] + at - self._starts[piece]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The span of the text from which ``start`` to ``end`` of the view come."""
        first, last = bisect_right(self._starts, start) - 1, bisect_right(self._starts, end - 1) - 1
        begin = min((self.place(start), *self._places[first + 1 : last + 1]))
        size = self._starts
        ends = (self._places[piece] + size[piece + 1] - size[piece] for piece in range(first, last))
        return begin, max((self.place(end - 1) + 1, *ends))


def plain(data: bytes) -> bool:
    """Whether all readers see the bytes unchanged: nothing is invisible and no cursor goes back. Fast."""
    if b"\x1b" in data or any(one in data for one in _CONTROLS) or _returns(data):
        return False
    if data.isascii():
        return True
    return not (any(lead in data for lead in _LEADS) and (_WIDE.search(data) or begun(data)))


def moves(data: bytes) -> bool:
    """Whether the cursor moves to another place in its line."""
    if b"\x08" in data or _returns(data):
        return True
    if b"\x1b" in data and _MOVE.search(data):
        return True
    return b"\xc2\x9b" in data and _WIDE_MOVE.search(data) is not None


def lasting(data: bytes) -> bytes:
    """Text without the controls that do not change a line of a terminal, each of which costs as much time as a word."""
    return data.translate(None, _IDLE) if data.isascii() and b"\x1b" not in data else data  # no code can form


def torn(data: bytes) -> int:
    """How many of the last bytes are the beginning of an incomplete character."""
    return len(match[0]) if data and data[-1] > 0x7F and (match := _TORN.search(data, max(0, len(data) - 3))) else 0


def _returns(data: bytes) -> bool:
    """Whether the cursor returns to the beginning of a line without going on to the next one."""
    return b"\r" in data and _RETURN.search(data) is not None


def bare(data: bytes) -> bytes:
    """The bytes without invisible codes, as in :func:`seen`, but in less than half the time."""
    rest = _COLOURS.sub(b"", data)
    return rest if plain(rest) else _unseen(data).sub(b"", data)


def _unseen(data: bytes) -> re.Pattern[bytes]:
    """The pattern that finds invisible codes: a faster one if only frequent codes occur."""
    if not data.isascii() or any(one in data for one in _CONTROLS):
        return _UNSEEN
    if not _returns(data):
        return _CODE
    return _UNSEEN if b"\x1b" in data else _RETURN


def seen(data: bytes) -> View:
    """The view without invisible codes."""
    pieces, places, at = [], [], 0
    for match in _unseen(data).finditer(data):
        start, end = match.span()
        if start > at:
            pieces.append(data[at:start])
            places.append(at)
        at = end
    if at < len(data) or not pieces:
        pieces.append(data[at:])
        places.append(at)
    return View(b"".join(pieces), [0, *accumulate(map(len, pieces[:-1]))], places)


def backspaced(data: bytes, offset: int = 0) -> View:
    """A line as text alone: a backspace removes the character before it. ``offset`` is its place in the whole text."""
    kept, at = bytearray(), 0
    places: list[int] = []
    for part in _BACK.split(data):
        if part == b"\b":
            while kept:
                places.pop()
                if kept.pop() & 0xC0 != 0x80:  # the first byte of a character
                    break
        elif part[:1] != b"\x1b":
            kept += part
            places += range(offset + at, offset + at + len(part))
        at += len(part)
    return View(bytes(kept), range(max(1, len(kept))), places or [offset])


def width(text: bytes) -> int:
    """The columns of a character: 0, 1 or 2. A terminal shows a broken character in one column."""
    if _WIDE.fullmatch(text):
        return 0
    letter = text.decode("utf-8", "replace")
    if len(letter) > 1 or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0 if len(letter) == 1 else 1
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def begun(data: bytes, last: int | None = None) -> int:
    """How many of the bytes up to ``last`` may begin an incomplete code, including codes that it cuts short."""
    first = last = len(data) if last is None else last
    while last - first < CODE_MOST and (found := _unfinished(data, first)) is not None:
        first = found
    return last - first


def _unfinished(data: bytes, end: int) -> int | None:
    """Where a code begins that is not complete at ``end``. Looks at few places: a flood of ESC took 40 s a MiB."""
    least = max(0, end - STRING_MOST)
    escapes = data.endswith(b"\x1b", least, end)  # it may begin the end of a string
    places = [data.rfind(b"\x1b", least, end - escapes)]
    if data.rfind(b"\xc2", least, end) >= 0:
        ended = max(data.rfind(one, least, end) for one in _ENDS)
        string = _C1_STRING.search(data, max(least, ended), end)  # the first one, as others may be its text
        places += string.start() if string else -1, data.rfind(b"\xc2\x9b", least, end)
    places += (end - 1,) if escapes else range(max(least, end - 3), end)
    return next((at for at in sorted(places) if at >= least and _BEGUN.match(data, at, end)), None)


def column_after(column: int, how: bytes, count: int, limit: int) -> int:
    """The column after a code that moves the cursor within its row."""
    count = max(1, count)
    match how:
        case b"C" | b"a":
            column += count
        case b"D":
            column -= count
        case b"I":
            column = (column // TAB + count) * TAB
        case b"Z":
            column = max(0, -(-column // TAB) - count) * TAB
        case b"G" | b"`":
            column = count - 1
    return min(max(0, column), limit)
