"""The control strings of a text (OSC, DCS, SOS, PM, APC), as different terminals read them, in linear time.

Terminals disagree about what begins and ends them. DEC's obey C1 controls that are encoded in UTF-8 and end a string at
any of them, xterm ends it only at ST, and others take such a control for nothing at all. Some programs end every
string at BEL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox_console.model.lazy_pattern import lazy_pattern
from sandbox_console.secrets.visible_text import BEL_ENDS, CODE_MOST, WITHIN

_BEGINS_7 = lazy_pattern(rb"\x1b[" + WITHIN + rb"]*[\]PX^_]")
_BEGINS_8 = lazy_pattern(rb"\x1b[" + WITHIN + rb"]*[\]PX^_]|\xc2[\x90\x98\x9d\x9e\x9f]")
_C1 = lazy_pattern(rb"\xc2[\x80-\x9f]")
_BEGUN = lazy_pattern(rb"\x1b[" + WITHIN + rb"]*\Z")
_OSC, _C1_STRING = b"\x1b]", b""
_STOPS, _OSC_STOPS = lazy_pattern(rb"[\x18\x1a\x1b\n]"), lazy_pattern(rb"[\x07\x18\x1a\x1b\n]")

# ESC, CAN and SUB end a string everywhere; a line feed means that it is none, as a viewer of lines shows what follows.
_END = rb"\x1b\\|[\x18\x1a]|(?=\x1b)|\n"
_BEL = rb"|\x07"
_ST = lazy_pattern(_END), lazy_pattern(_END + _BEL)
_ANY_BEL = lazy_pattern(_END + _BEL), lazy_pattern(_END + _BEL)
_DEC = (
    lazy_pattern(_END + rb"|\xc2\x9c|(?=\xc2[\x80-\x9f])"),
    lazy_pattern(_END + _BEL + rb"|\xc2\x9c|(?=\xc2[\x80-\x9f])"),
)
_XTERM = lazy_pattern(_END + rb"|\xc2\x9c"), lazy_pattern(_END + _BEL + rb"|\xc2\x9c")


def readings(data: bytes) -> Iterator[bytes]:
    """The text as other terminals read it, each time of the same length.

    Control strings are CAN and NULs in it, so that they end a code before them and show nothing. So are C1 controls
    where they are obeyed, except that CSI is ``ESC [``.
    """
    if b"\x1b" in data:
        if len(data) > CODE_MOST and _BEGINS_7.search(data):
            yield _without(data, _BEGINS_7, _ST)
        if b"\x07" in data and BEL_ENDS.search(data):
            yield _without(data, _BEGINS_7, _ANY_BEL)
    if b"\xc2" in data and _C1.search(data):
        for ends in (_DEC, _XTERM):
            yield _C1.sub(_obeyed, _without(data, _BEGINS_8, ends))


def _obeyed(match: re.Match[bytes]) -> bytes:
    return b"\x1b[" if match[0] == b"\xc2\x9b" else b"\x18\0"


def _without(data: bytes, begins: re.Pattern[bytes], ends: tuple[re.Pattern[bytes], re.Pattern[bytes]]) -> bytes:
    """``data`` without its complete strings. Each end is looked for once, even if no string reaches it."""
    parts: list[bytes] = []
    done = at = 0
    next_ends: list[tuple[int, int] | None] = [None, None]
    while (begin := begins.search(data, at)) is not None:
        at, osc = begin.end(), data[begin.end() - 1] in b"]\x9d"
        found = next_ends[osc]
        if found is None or found[0] < at:
            end = ends[osc].search(data, at)
            found = next_ends[osc] = end.span() if end is not None else (len(data), len(data) + 1)
        start, stop = found
        if stop > len(data) or data[start:stop] == b"\n":
            continue
        parts += data[done : begin.start()], b"\x18", bytes(stop - begin.start() - 1)
        done = at = stop
    return b"".join((*parts, data[done:])) if parts else data


class LineFeeds:
    """Makes line feeds in control strings take effect, as terminals ignore them there.

    Masking sees two lines, and a value that they break up would be whole on the screen. The string is ended before each
    line feed, and begun again after it, so that what follows stays hidden.
    """

    def __init__(self) -> None:
        self._string: bytes | None = None
        self._begun = b""  # the last bytes, if they may be the beginning of a code

    def feed(self, data: bytes) -> bytes:
        """Return the bytes, with control strings moved to where they take effect."""
        if self._string is None and not self._begun and b"\x1b" not in data and b"\xc2" not in data:
            return data
        skipped, data = len(self._begun), self._begun + data
        parts: list[bytes] = []
        at = 0
        while (found := self._next(data, at)) is not None:
            parts.append(data[at : found.start()])
            at = found.end()
            if found[0] == b"\n" and self._string is not None:
                parts += b"\x18\r\n", self._string
                self._string = self._string or None
            elif self._string is None:
                self._string = b"\x1b" + found[0][-1:] if found[0][:1] == b"\x1b" else _C1_STRING
                parts.append(found[0])
            else:
                self._string = None
                at = found.start() if found[0] == b"\x1b" else at
                parts.append(b"" if found[0] == b"\x1b" else found[0])
        begun = _BEGUN.search(data, at) if self._string is None else None
        self._begun = begun[0][-CODE_MOST:] if begun is not None else b""
        return b"".join((*parts, data[at:]))[skipped:]

    def _next(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """What begins a string, or ends the one that is open."""
        if self._string is None:
            return _BEGINS_8.search(data, at)
        return (_OSC_STOPS if self._string in (_OSC, _C1_STRING) else _STOPS).search(data, at)
