"""Rewrites a shell's codes so that every terminal does the same with them, and masking can follow all that is left.

Masking follows a cursor in rows of a known width, with tab stops at every eighth column. A guest could choose codes
that only some terminals obey, change the width or the stops, or split a code so that it is read in two ways. Such codes
are left out or replaced by others; programs do not need them. Facts are from ECMA-48 and xterm's ctlseqs.
"""

from __future__ import annotations

import re

from sandbox_console.model.lazy_pattern import lazy_pattern
from sandbox_console.secrets.visible_text import WITHIN, torn

_INSIDE = WITHIN + rb"\n"  # a terminal obeys line feeds in a code as well
_CODE = lazy_pattern(
    rb"\x1b(?!\[[0-9:;]*+m)[" + _INSIDE + rb"]*+(?:"
    rb"\[(?P<arguments>[" + _INSIDE + rb" -?]*+)(?:(?P<final>[@-~])|(?P<cut>[\x18\x1a]|(?=[\x1b\x80-\xff])))"
    rb"|(?P<between>[ -/][" + _INSIDE + rb" -/]*+)(?P<last>[0-~])"
    rb"|(?P<one>[0-OQ-WYZ\\`-~]))|\x0b|\x0c"
)  # fmt: skip - each branch begins with one byte, so that the text between is skipped at once
_COLOR = lazy_pattern(rb"\x1b\[[0-9:;]*+m")
"""Passed on as it is, without a call for each: of these programs write the most."""
_BEGUN = lazy_pattern(rb"\x1b[" + _INSIDE + rb"]*+(?:\[[" + _INSIDE + rb" -?]*+|[ -/][" + _INSIDE + rb" -/]*+)?\Z")
_CONTROL = lazy_pattern(rb"[" + _INSIDE + rb"]")
_C1 = lazy_pattern(rb"\xc2([\x80-\x9f])")
_BEGUN_MOST = 1024
_LONGEST = 64
"""Bytes of a code's arguments. Terminals, and the filter of the command line, drop longer ones or cut them."""

_NUMBERS_MOST = 16
_INDEX = b"\x1bD"
_RESETS = b"\x1b[4l\x1b[?7h"
"""Inserting off and wrapping on, as after a reset."""

_ESCAPES = {
    b"c": b"\x1bc" + _RESETS + b"\x1b[?6l\x1b[r\x1b[H\x1b[2J",
    **dict.fromkeys((b"H", b"F", b"6", b"9", b"l", b"m"), b""),  # tab stops, and moves that few terminals know
}
_BETWEEN = frozenset((b" q", b"$p", b'"q', b"#{", b"#}"))
_ALIASES = {b"j": b"D", b"k": b"A"}
_PRIVATE_MODES = frozenset((3, 40, 45, 69, 1045))
"""The width of 132 columns, cursors that go back around the left edge, and margins left and right."""

_WINDOW_MOST = 10  # larger ones only ask


class CanonicalCodes:
    """Rewrites a stream. What it gives out never ends within a code or a character."""

    def __init__(self) -> None:
        self._held = b""
        self._last = b""  # the last byte, unless it belongs to a code
        self._ended = -1  # where the code before ended

    def feed(self, data: bytes) -> bytes:
        """The bytes with codes that every terminal obeys in the same way. An unfinished code waits for its end."""
        data, self._held = self._held + data, b""
        if size := torn(data):
            data, self._held = data[:-size], data[-size:]
        self._ended = -1
        if b"\x1b" in data or b"\xc2" in data or b"\x0b" in data or b"\x0c" in data:
            data = self._rewritten(_C1.sub(lambda match: b"\x1b%c" % (match[1][0] - 0x40), data))
        elif data:
            self._last = data[-1:]
        return data

    def _rewritten(self, data: bytes) -> bytes:
        begun = _BEGUN.search(data, max(0, data.rfind(b"\x1b")))
        if begun is not None:
            data, waits = data[: begun.start()], data[begun.start() :]
            if len(waits) <= _BEGUN_MOST:
                self._held = waits + self._held
            else:  # no program writes such a code: it has no effect
                data += b"".join(_CONTROL.findall(waits))
        shown = _CODE.sub(self._replaced, data)
        self._last = b"" if self._ended == len(data) or _ends_in_color(data, len(data)) else data[-1:]
        return shown

    def _replaced(self, match: re.Match[bytes]) -> bytes:
        text = match[0]
        repeatable = self._last if not match.start() else match.string[match.start() - 1 : match.start()]
        repeats, self._ended = _printed(repeatable) and self._ended != match.start(), match.end()
        if text in b"\x0b\x0c":
            return _INDEX
        controls = b"".join(_CONTROL.findall(text)).replace(b"\x0b", _INDEX).replace(b"\x0c", _INDEX)
        if match["one"] is not None:
            return controls + _ESCAPES.get(match["one"], b"\x1b" + match["one"])
        if match["last"] is not None:
            between = _CONTROL.sub(b"", match["between"])
            return controls + (b"\x1b" + between + match["last"] if _charset(between, match["last"]) else b"")
        if match["final"] is None:
            return controls
        arguments = _CONTROL.sub(b"", match["arguments"])
        if match["final"] == b"b" and (not repeats or _ends_in_color(match.string, match.start())):
            return controls  # it repeats what was written last, or nothing
        return controls + _code(arguments, match["final"])


def _ends_in_color(data: bytes, end: int) -> bool:
    return _COLOR.fullmatch(data, max(0, data.rfind(b"\x1b", 0, end)), end) is not None


def _printed(last: bytes) -> bool:
    return last > b" " and last != b"\x7f"


def _charset(between: bytes, last: bytes) -> bool:
    return between in (b"(", b")") and last in b"0B"


def _code(arguments: bytes, final: bytes) -> bytes:
    """A CSI code as it may be passed on; empty if it may not."""
    plain = arguments.rstrip(b" !\"#$%&'()*+,-./")
    if len(plain) < len(arguments):
        between = arguments[len(plain) :] + final
        return b"\x1b[" + arguments + final if between in _BETWEEN else _RESETS if between == b"!p" else b""
    if final == b"m":
        return b"\x1b[" + arguments + final
    private, numbers = (plain[:1], plain[1:]) if plain[:1] in (b"<", b"=", b">", b"?") else (b"", plain)
    parts = numbers.split(b";")
    if len(plain) > _LONGEST or len(parts) > _NUMBERS_MOST or not all(part.isdigit() or not part for part in parts):
        return b""
    parts = [_number(part) for part in parts]
    if not _allowed(private, parts, final):
        return b""
    if final in b"hl":
        parts = _modes(private, parts)
        if not parts:
            return b""
    return b"\x1b[" + private + b";".join(parts) + _ALIASES.get(final, final)


def _number(part: bytes) -> bytes:
    digits = part.lstrip(b"0") or part[:1]
    return digits if len(digits) < 5 else b"9999"  # of which terminals read the last bits, or as much as they can


def _allowed(private: bytes, parts: list[bytes], final: bytes) -> bool:
    if final == b"t":
        return not private and int(parts[0] or 0) > _WINDOW_MOST
    return not (final in b"gWp" or (private == b"?" and final in b"rs"))


def _modes(private: bytes, parts: list[bytes]) -> list[bytes]:
    if not private:
        return [part for part in parts if part == b"4"]
    return [part for part in parts if int(part or 0) not in _PRIVATE_MODES]
