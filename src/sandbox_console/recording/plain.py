"""A recording as lines of text: what a person would have read, without the codes that draw it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sandbox_console.recording.cast import Event

_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
_BACK = re.compile(r"[^\x08]\x08")
_LONGEST = 100_000  # characters; a screen program may write for ever without a newline


def lines(events: Iterable[Event]) -> Iterator[tuple[float, str]]:
    """Each line with the time at which it began."""
    held, began = "", 0.0
    for at, kind, text in events:
        if kind != "o":
            continue
        began = began if held else at
        *whole, held = (held + text).split("\n")
        for one in whole:
            yield began, plain(one)
            began = at
        if len(held) > _LONGEST:
            yield began, plain(held)
            held = ""
    if held:
        yield began, plain(held)


def plain(text: str) -> str:
    """One line: codes dropped, backspaces taken at their word, what was overwritten from the line's beginning lost."""
    text = _CODES.sub("", text).rstrip("\r")
    while "\b" in text.lstrip("\b") and (shorter := _BACK.sub("", text)) != text:
        text = shorter
    return text.rpartition("\r")[2].lstrip("\b")
