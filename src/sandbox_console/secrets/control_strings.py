"""The control strings of a text (OSC, DCS, SOS, PM, APC), as different terminals read them, in linear time.

Terminals disagree about what begins and ends them. DEC's obey C1 controls that are encoded in UTF-8 and end a string at
any of them, xterm ends it only at ST, and others take such a control for nothing at all. Some programs end every
string at BEL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox_console.model.late_pattern import late_pattern
from sandbox_console.secrets.visible_text import BEL_ENDS, CODE_MOST, WITHIN

_BEGINS_7 = late_pattern(rb"\x1b[" + WITHIN + rb"]*[\]PX^_]")
_BEGINS_8 = late_pattern(rb"\x1b[" + WITHIN + rb"]*[\]PX^_]|\xc2[\x90\x98\x9d\x9e\x9f]")
_C1 = late_pattern(rb"\xc2[\x80-\x9f]")

# ESC, CAN and SUB end a string everywhere; a line feed means that it is none, as a viewer of lines shows what follows.
_END = rb"\x1b\\|[\x18\x1a]|(?=\x1b)|\n"
_BEL = rb"|\x07"
_ST = late_pattern(_END), late_pattern(_END + _BEL)
_ANY_BEL = late_pattern(_END + _BEL), late_pattern(_END + _BEL)
_DEC = (
    late_pattern(_END + rb"|\xc2\x9c|(?=\xc2[\x80-\x9f])"),
    late_pattern(_END + _BEL + rb"|\xc2\x9c|(?=\xc2[\x80-\x9f])"),
)
_XTERM = late_pattern(_END + rb"|\xc2\x9c"), late_pattern(_END + _BEL + rb"|\xc2\x9c")


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
