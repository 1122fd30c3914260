"""The words of the filter line with their positions, and the values that fields are compared with. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct

from sandbox_console.errors import UsageError
from sandbox_console.model.quantities import parse_duration_s

Search = Callable[[str], object]
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([bkmgt]?)(?:i?b)?(?:/s)?", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)%?", re.ASCII)
_META = frozenset("\\^$.|?*+()[]{}")
_BACKSLASHES = re.compile(r'(\\+)(?=")')
_REPEATS = frozenset("*+?{")


class FilterError(UsageError):
    """The filter line cannot be parsed. ``position`` is the place of the error, in characters from 0."""

    code = "filter"

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class Word(Struct, frozen=True):
    """One word of the line without its quotes. ``quoted`` is the number of characters before the first quote."""

    text: str
    at: int
    quoted: int | None = None


def words(line: str) -> Iterator[Word]:
    """Yield the words, which are separated by spaces. ``"…"`` keeps spaces and signs, a backslash escapes a quote.

    Two backslashes before a quote are one, and the quote ends there. Elsewhere a backslash is literal.

    Raises FilterError for a quote that is not closed.
    """
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        word, at = _word(line, at)
        yield word


def _word(line: str, start: int) -> tuple[Word, int]:
    text: list[str] = []
    quoted: int | None = None
    opened = -1
    at = start
    while at < len(line) and (opened >= 0 or not line[at].isspace()):
        if line[at] == '"':
            quoted = len(text) if quoted is None else quoted
            opened = -1 if opened >= 0 else at
        elif opened >= 0 and (match := _BACKSLASHES.match(line, at)):
            count = len(match[1])
            text.append("\\" * (count // 2) + '"' * (count % 2))
            at += count - 1 + count % 2
        else:
            text.append(line[at])
        at += 1
    if opened >= 0:
        raise FilterError("this quote is not closed", opened)
    return Word("".join(text), start, quoted), at


class Finder(Struct, frozen=True):
    """Searches many texts: ``flags`` returns for each whether it matches. Texts are in lower case unless ``cased``.

    ``plain`` means that more letters can only match less.
    """

    flags: Callable[[Sequence[str]], Iterable[object]]
    cased: bool
    plain: bool = False


def finder(text: str, at: int, *, literal: bool = False) -> Finder:
    """Return a finder for a text or regular expression. If it is in lower case, it ignores case. Raises FilterError.

    Plain text is searched directly: 10,000 names in 0.6 ms. An expression with repetition may take forever in
    Python's own engine, and sandboxes choose the names, so RE2 searches these together: 10,000 in at most 20 ms.
    """
    cased = any(map(str.isupper, text))
    if literal or not _META.intersection(text):
        return Finder(lambda texts: [text in one for one in texts], cased, plain=True)
    flags = re.MULTILINE | (0 if cased else re.IGNORECASE)
    try:
        own = re.compile(text, flags).search
    except re.error as error:
        raise FilterError(f"{error.msg}; in quotes it is plain text", at + (error.pos or 0)) from None
    except (OverflowError, RecursionError):
        raise FilterError("this expression is too large", at) from None
    return Finder((lambda texts: map(own, texts)) if not _REPEATS.intersection(text) else _linear(text, at), cased)


def searcher(text: str, at: int) -> Search:
    """Return a test for one text, while `finder` tests many at once. Raises FilterError."""
    found = finder(text, at)
    if found.cased:
        return lambda one: any(found.flags([one]))
    return lambda one: any(found.flags([one.lower()]))


def _linear(text: str, at: int) -> Callable[[Sequence[str]], Iterable[object]]:
    from sandbox_console.logs.pattern import compile_pattern  # 57 ms of CPU, for the engine

    try:
        search = compile_pattern(text).lines.search
    except UsageError as error:
        raise FilterError(error.message.partition(": ")[2] or error.message, at) from None
    return lambda texts: _flagged(search, texts)


def _flagged(search: Callable[[bytes, int], Any], texts: Sequence[str]) -> bytearray:
    """Search the texts as lines of one text. Texts without a match then cost almost nothing; each call costs 2 us."""
    encoded = [one.encode("utf-8", "replace") for one in texts]
    ends = list(accumulate(len(one) + 1 for one in encoded))
    whole, flags, at = b"\n".join(encoded), bytearray(len(texts)), 0
    while at < len(texts) and (match := search(whole, ends[at - 1] if at else 0)):
        at = bisect_right(ends, match.start(), at)
        if at < len(texts):
            flags[at] = 1
        at += 1
    return flags


def number(text: str, at: int) -> float:
    """Parse a number, with or without ``%``. Raises FilterError."""
    if not (match := _NUMBER.fullmatch(text)):
        raise FilterError(f"{text!r} is not a number", at)
    return float(match[1])


def size(text: str, at: int) -> float:
    """Parse ``512M``, ``1.5GiB`` or plain bytes. Raises FilterError."""
    if not (match := _SIZE.fullmatch(text)):
        raise FilterError(f"{text!r} is not a size; write 512M or 2G", at)
    return float(match[1]) * _UNITS[match[2].lower()]


def duration(text: str, at: int) -> float:
    """Parse ``90s``, ``15m``, ``1h`` or ``2d`` to seconds. Raises FilterError."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise FilterError(str(error), at) from None


def yes(text: str, at: int) -> bool:
    """Parse ``yes`` or ``no``. Raises FilterError."""
    if text.lower() not in ("yes", "no", "true", "false"):
        raise FilterError(f"{text!r} is neither yes nor no", at)
    return text.lower() in ("yes", "true")
