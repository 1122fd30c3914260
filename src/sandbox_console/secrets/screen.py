"""Values that are put together by codes that move the cursor to another row, or rows to another place.

Each row is followed where it is exactly known (`Rows`): on the alternate screen, which is empty when a program opens
it, of a terminal of a known size. Elsewhere, nobody knows the height of the terminal in which a log is shown, or where
the cursor was when a shell began. A text could then be in any row, so everything that was written in a column counts as
beside everything in the next one (`Columns`). That masks too much rather than too little.

What completes a value is replaced by stars, one for each character, because it must not move what follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandbox_console.model.lazy_pattern import lazy_pattern
from sandbox_console.secrets.screen_cells import Cells, Page, Values
from sandbox_console.secrets.screen_columns import Columns
from sandbox_console.secrets.screen_rows import Rows
from sandbox_console.secrets.visible_text import (
    BEL_ENDS,
    COLUMNS_MOST,
    CSI,
    ESC,
    LETTER,
    ONES,
    WIDTHLESS,
    WITHIN,
    width,
)

FORGOTTEN = 400
"""Lines after which nothing written before is on the screen: of 200 rows, twice, as the cursor may be at the top."""

_KNOWN = b"\x1b[?6l\x1b[?69l\x1b[?7h\x1b[4l\x1b[r\x1b[H"
"""Brings the modes, the region and the cursor of a terminal into the state in which `Rows` begins."""

_ROAMS = lazy_pattern(
    rb"\x1b(?!\[[0-9;]*+m)[" + WITHIN + rb"]*+(?:\[[" + WITHIN + rb"0-;]*+[ABEFHLMSTdefkru]|[8M]|\[[" + WITHIN
    + rb"]*+\?[" + WITHIN + rb"0-;]*(?:4[" + WITHIN + rb"]*+[79]|(?<![0-9])6[" + WITHIN + rb"]*+9?)(?![0-9])["
    + WITHIN + rb"0-;]*+[hl])"
)  # colours are passed over fast  # fmt: skip
_WIDE_ROAMS = lazy_pattern(rb"\xc2\x9b[" + WITHIN + rb"0-?]*[ABEFHLMSTdefkruhl]|\xc2\x8d")
_STEP = lazy_pattern(
    rb"([\x20-\x7e]+)|" + CSI + rb"([" + WITHIN + rb"0-?]*)([ -/" + WITHIN + rb"]*[@-~])|" + ESC + rb"|" + WIDTHLESS
    + rb"|" + LETTER + rb"|.",
    re.DOTALL,
)  # fmt: skip
_WITHIN_ONE = lazy_pattern(rb"[" + WITHIN + rb"]")
_C1 = lazy_pattern(rb"\xc2([\x80-\x9f])")
_ALTERNATE = frozenset((47, 1047, 1049))
_DISPUTED = frozenset((6, 69))
"""The modes of rows that count from the region's top and of margins left and right: terminals differ, programs do not
need them."""
_CHANGES_ROW = frozenset(b"P@XK")
_STARS = b"*#+-=~.,:;"


def roams(data: bytes) -> bool:
    """Whether text is moved to other rows, or the cursor is, other than by a line feed."""
    if b"\x1b" in data and _ROAMS.search(data):
        return True
    return b"\xc2" in data and _WIDE_ROAMS.search(data) is not None


class Screen:
    """Masks values that are put together by moving the cursor, in output in which they are masked otherwise."""

    def __init__(self, values: Values, size: tuple[int, int] | None = None) -> None:
        """``size`` has the columns and rows of the terminal, if it is known."""
        self.masked = 0  # how often
        used = {cell for form in values.cells() for cell, _ in form}
        self._star = next((one for one in map(ONES.__getitem__, _STARS) if one not in used), b"*")
        self._values, self._size = values, size
        self._main = self._unknown()
        self._alternate: Rows | Columns = self._unknown()
        self._page: Page = self._main
        self._last = b""
        self._lines = 0  # since the cursor went up
        self._keeps = False  # rows that line feeds do not scroll away
        self._home = False  # the cursor was moved there last
        self._strayed = False  # nobody knows in which column the main screen's cursor is

    @property
    def alternate(self) -> bool:
        """Whether the alternate screen is shown."""
        return self._page is not self._main

    @property
    def forgettable(self) -> bool:
        """Whether nothing that was written before the cursor moved is on the screen any more."""
        return self._lines > FORGOTTEN and not self._keeps

    def resize(self, columns: int, rows: int) -> None:
        """Follow a new size. Where rows are then is not known until a program opens the screen again."""
        self._strayed = self._strayed or (self.alternate and self._size is not None and columns != self._size[0])
        self._size = columns, rows
        self._main.resize(columns)
        if isinstance(self._alternate, Columns):
            self._alternate.resize(columns)
        else:
            known, self._alternate = self._alternate, self._unknown()
            for row in known.drawn():
                self._alternate.column = 0
                self._alternate.put([ONES[one] for one in row], row)
            self._alternate.column = known.column
            self._page = self._alternate if self._page is known else self._page

    def _unknown(self) -> Columns:
        return Columns(self._values, self._star, self._size[0] if self._size else 0)

    def mask(self, data: bytes) -> bytes:
        """The output with stars in place of whatever completes a value. It must have no incomplete code at its end."""
        shown = []
        for match in _STEP.finditer(_unambiguous(data)):
            text = match[0]
            if match[1]:
                shown.append(self._put([ONES[one] for one in text], text))
            elif match[3]:
                shown.append(self._code(text, match[2], _WITHIN_ONE.sub(b"", match[3])))
            elif text[0] > 0x7F:
                wide = width(text)
                shown.append(self._put([text, b""][:wide], text) if wide else text)
            else:
                self._control(text)
                shown.append(text)
        return b"".join(shown)

    def _put(self, cells: Cells, text: bytes, written: bytes | None = None) -> bytes:
        """Write characters. Returns ``text``, or stars for some of it; ``written`` is what is written by a code."""
        self._home = False
        self._last = cells[-1] or cells[-2]
        done = self._page.put(cells, text if written is None else written)
        if done is cells or list(done) == list(cells):
            return text
        self.masked += 1
        return b"".join(done)

    def _code(self, text: bytes, arguments: bytes, final: bytes) -> bytes:
        """Obey a CSI code. Returns what may be shown: nothing of one that would complete a value."""
        for one in _WITHIN_ONE.findall(text):
            self._control(one)
        arguments = _WITHIN_ONE.sub(b"", arguments)
        private, numbers = arguments[:1] in b"<=>?" and bool(arguments), _numbers(arguments.lstrip(b"<=>?"))
        if private:
            return self._mode(text, final, numbers) if arguments[:1] == b"?" and final in b"hl" else text
        how = final[0]
        if how in _CHANGES_ROW and len(final) == 1:
            if not self._page.shift(how, numbers[0]):
                self.masked += 1
                return b""
        elif final == b"b":
            again = [self._last, b""] if self._last and width(self._last) == 2 else [self._last]
            return self._put(again * min(max(1, numbers[0]), COLUMNS_MOST), text, b"") if self._last else text
        else:
            self._move(final, numbers)
        return text

    def _move(self, final: bytes, numbers: Sequence[int]) -> None:
        home, self._home = self._home, final in b"Hf" and max(numbers) < 2
        if final == b"J" and (numbers[0] == 2 or (home and not numbers[0])):
            self._page.wipe()
        else:
            if final in b"ABEFHLMSTdefkru" and final not in b"Be":
                self._lines = 0
            self._keeps = self._keeps or final == b"r"
            self._page.vertical(final, numbers)

    def _mode(self, text: bytes, final: bytes, numbers: Sequence[int]) -> bytes:
        if _DISPUTED.intersection(numbers) and final == b"h":
            numbers = [number for number in numbers if number not in _DISPUTED]
            text = b"\x1b[?" + b";".join(b"%d" % number for number in numbers) + b"h" if numbers else b""
        for number in numbers:
            if number in _ALTERNATE:
                text += self._switch(on=final == b"h", clears=number == 1049)
            else:
                self._page.vertical(b"?" + final, [number])
        return text

    def _switch(self, *, on: bool, clears: bool) -> bytes:
        """Go to the other screen. Returns what must be shown after the code."""
        self._keeps = True  # what the main screen shows comes back
        if on and clears:
            self._main.vertical(b"s", [0])
            known = Rows(self._values, self._star, self._size) if self._size else None
            self._alternate = known or self._unknown()
        column, self._page = self._page.column, self._alternate if on else self._main
        self._page.column = column
        if clears and not on:
            self._page.vertical(b"u", [0])
        if self._strayed and not on:
            self._strayed, self._page.column = False, 0
            return b"\r"
        if not (on and isinstance(self._page, Rows)):
            return b""
        self._page.begin()
        return _KNOWN + (b"\x1b[2J" if clears else b"")

    def _control(self, text: bytes) -> None:
        match text:
            case b"\n" | b"\x0b" | b"\x0c":
                self._lines += 1
                self._page.vertical(b"\n" if text == b"\n" else b"\x0b", [0])
            case b"\r":
                self._page.column = 0
            case b"\x08":
                self._page.vertical(b"D", [1])
            case b"\t":
                self._page.vertical(b"I", [1])
            case _ if len(text) > 1 and text[:1] == b"\x1b":
                for one in _WITHIN_ONE.findall(text):
                    self._control(one)
                self._escape(_WITHIN_ONE.sub(b"", text))

    def _escape(self, text: bytes) -> None:
        match text:
            case b"\x1b7" | b"\x1b8":
                self._lines = self._lines if text[1:] == b"7" else 0
                self._page.vertical(b"s" if text[1:] == b"7" else b"u", [0])
            case b"\x1bD" | b"\x1bE" | b"\x1bM" | b"\x1bc" | b"\x1b#8":
                self._lines = 0 if text == b"\x1bM" else self._lines
                self._page.vertical(text, [0])


def _unambiguous(data: bytes) -> bytes:
    """The output with codes on which all terminals agree.

    Some obey C1 controls that are encoded in UTF-8 and others do not, and some end a DCS, SOS, PM or APC with BEL.
    """
    if b"\xc2" in data:
        data = _C1.sub(lambda match: b"\x1b%c" % (match[1][0] - 0x40), data)
    return BEL_ENDS.sub(lambda match: match[0][:-1], data) if b"\x07" in data and b"\x1b" in data else data


def _numbers(arguments: bytes) -> list[int]:
    """The numbers of a code; 0 for each that it leaves out."""
    return [int(part[:5]) if part.isdigit() else 0 for part in re.split(rb"[;:]", arguments)]
