"""Makes hostile text safe to show, so that nothing in it acts on the terminal."""

from __future__ import annotations

import re

LINE_CAP = 8192
"""How many characters of one line are shown. Where a line is cut, the cut is marked."""

_SGR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
# C0 but tab, DEL, C1, Arabic letter mark, soft hyphen, zero-width and bidi marks, line separators, invisible
# operators, fillers, BOM, variation selectors beyond emoji's, interlinear marks, hieroglyph controls, tags,
# surrogates, noncharacters.
_UNSAFE = (
    "\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_BAD = re.compile(f"[{_UNSAFE}]")
_ASCII_BAD = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def clean(text: str | bytes, *, keep_sgr: bool = False, cap: int = LINE_CAP) -> str:
    """One line of text with every control, bidi and invisible character replaced by a visible one.

    C0 and DEL become their pictures (``␛``), the rest ``<U+202E>``. With ``keep_sgr`` colour sequences (``ESC [ ...
    m``) stay, and nothing else of ANSI does. A line longer than ``cap`` characters is cut, with a mark.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    cut = len(text) - cap
    if cut > 0:
        text = text[:cap]
    if not (_ascii_unsafe(text) if text.isascii() else _BAD.search(text)):
        shown = text
    elif keep_sgr and "\x1b" in text:
        shown = _clean_around_colours(text)
    else:
        shown = _BAD.sub(_visible, text)
    return f"{shown}…[+{cut}]" if cut > 0 else shown


def _ascii_unsafe(text: str) -> bool:
    # isprintable() is 10 times as fast as the search, which remains for lines with tabs.
    return not text.isprintable() and _ASCII_BAD.search(text) is not None


def _clean_around_colours(text: str) -> str:
    parts: list[str] = []
    at = 0
    for match in _SGR.finditer(text):
        parts += _BAD.sub(_visible, text[at : match.start()]), match.group()
        at = match.end()
    parts.append(_BAD.sub(_visible, text[at:]))
    if at:  # an open colour would run into the operator's own prompt
        parts.append("\x1b[0m")
    return "".join(parts)


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def strip_colours(text: str) -> str:
    """Text without its colour sequences. Removing only the control characters would leave ``[31m`` behind."""
    return _SGR.sub("", text) if "\x1b" in text else text


def strip_unsafe(text: str) -> str:
    """Text without anything that acts on a terminal, except tabs: the last guard before cleaned text is drawn."""
    return text if text.isascii() and text.isprintable() else _BAD.sub("", text)


def ascii_id(text: str) -> str:
    """An identifier as plain ASCII, with other characters escaped, so that homoglyphs can be distinguished."""
    return _BAD.sub(_visible, text.encode("ascii", "backslashreplace").decode())
