"""Filters the output of a guest's shell for the operator's real terminal: it may only draw.

An allow-list over the control sequences of ECMA-48 and xterm (its ctlseqs document): characters, cursor movement,
erasing, colours, scrolling, character sets and the modes that full-screen programs use. Dropped are OSC (titles,
clipboard, links), DCS, APC, PM and SOS, every query (its answer would be typed into the guest or, after its end, into
the operator's own shell), erasing the scrollback, window operations, printing and keyboard protocols.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum, auto

_ESC = "\x1b"
_CSI_CAP = 64
_STRING_END = re.compile("[\x07\x18\x1a\x1b]")
# BEL, BS, TAB, LF, CR, SO and SI stay. ENQ makes a terminal answer; C1 begins sequences; bidi marks reorder a line.
_UNSAFE = re.compile("[\x00-\x06\x0b\x0c\x10-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PLAIN = frozenset("78DEM=>")
_FINALS = frozenset("@ABCDEFGHIJKLMPSTXZ`abdefmrsu")
_MODES = frozenset(
    {"1", "5", "6", "7", "9", "12", "25", "47", "1000", "1002", "1003", "1004", "1005", "1006"}
    | {"1015", "1016", "1047", "1048", "1049", "2004", "2026"}
)
_ON_BY_DEFAULT = frozenset({"7", "25"})


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()
    CSI = auto()
    CHARSET = auto()
    STRING = auto()


class ScreenFilter:
    """Removes everything from a PTY's bytes that does not draw. Sequences may be split anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.GROUND
        self._sequence = ""
        self._modes: dict[str, bool] = {}
        self._used: set[str] = set()

    def feed(self, data: bytes) -> bytes:
        """Filter a chunk. An unfinished sequence is kept as state, and nothing of it is passed on before its end."""
        text = self._decoder.decode(data)
        out: list[str] = []
        at = 0
        while at < len(text):
            if self._state is _State.GROUND:
                at = self._ground(text, at, out)
            elif self._state is _State.STRING:
                at = self._string(text, at, out)
            else:
                out.append(self._step(text[at]))
                at += 1
        return "".join(out).encode()

    def restore(self) -> bytes:
        """The sequences that reset the modes that the guest left set, without moving the cursor of an idle terminal."""
        modes = [mode for mode, on in self._modes.items() if on is not (mode in _ON_BY_DEFAULT)]
        text = "".join(f"{_ESC}[?{mode}{'h' if mode in _ON_BY_DEFAULT else 'l'}" for mode in modes)
        text += f"{_ESC}7{_ESC}[r{_ESC}8" if "r" in self._used else ""
        text += f"{_ESC}[0 q" if "q" in self._used else ""
        return f"{text}{_ESC}[4l{_ESC}>{_ESC}(B\x0f{_ESC}[0m".encode()

    def _ground(self, text: str, at: int, out: list[str]) -> int:
        begins = text.find(_ESC, at)
        plain = text[at:] if begins < 0 else text[at:begins]
        out.append(_characters(plain))
        if begins < 0:
            return len(text)
        self._state = _State.ESCAPE
        return begins + 1

    def _string(self, text: str, at: int, out: list[str]) -> int:
        """Skip a string's body. ESC ends it, whether or not a backslash follows.

        A line feed in it takes effect: masking sees two lines there, which must not become one.
        """
        end = _STRING_END.search(text, at)
        out.append("\r\n" * text.count("\n", at, end.start() if end is not None else len(text)))
        if end is None:
            return len(text)
        self._state = _State.ESCAPE if end.group() == _ESC else _State.GROUND
        return end.end()

    def _step(self, char: str) -> str:
        if char == _ESC:
            self._state = _State.ESCAPE
            return ""
        if char in "\x18\x1a":
            self._state = _State.GROUND
            return ""
        if char < " ":  # a control character inside a sequence takes effect, and the sequence goes on
            return _characters(char)
        if self._state is _State.ESCAPE:
            return self._escape(char)
        if self._state is _State.CHARSET:
            return self._charset(char)
        return self._csi(char)

    def _escape(self, char: str) -> str:
        self._sequence = ""
        if char == "[":
            self._state = _State.CSI
        elif char in "]PX^_":
            self._state = _State.STRING
        elif " " <= char <= "/":
            self._state, self._sequence = _State.CHARSET, char
        else:
            self._state = _State.GROUND
            return _ESC + char if char in _PLAIN else ""
        return ""

    def _charset(self, char: str) -> str:
        """A code with characters between ESC and its last one, most of which choose a character set."""
        if " " <= char <= "/":
            self._sequence = "-"
            return ""
        self._state = _State.GROUND
        return f"{_ESC}{self._sequence}{char}" if self._sequence in ("(", ")") and char in "0B" else ""

    def _csi(self, char: str) -> str:
        if " " <= char <= "?":
            self._sequence += char if len(self._sequence) < _CSI_CAP else ""
            return ""
        self._state = _State.GROUND
        if not ("@" <= char <= "~" and len(self._sequence) < _CSI_CAP and self._allowed(self._sequence, char)):
            return ""
        self._used.add(char)
        return f"{_ESC}[{self._sequence}{char}"

    def _allowed(self, csi: str, final: str) -> bool:
        if final in "hl":
            return self._mode(csi, on=final == "h")
        if final == "q":
            return csi in (" ", "0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ")
        if final == "J":
            return csi in ("", "0", "1", "2")
        return final in _FINALS and all(char in "0123456789;:" for char in csi)

    def _mode(self, csi: str, *, on: bool) -> bool:
        if not csi.startswith("?"):
            return csi == "4"
        asked = csi[1:].split(";")
        if not _MODES.issuperset(asked):
            return False
        self._modes |= dict.fromkeys(asked, on)
        return True


def _characters(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub("", text)
