"""Finds the line of a configuration file that an error is about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox_console.model.lazy_pattern import lazy_pattern

_HEADER = lazy_pattern(r"\s*\[\[?\s*([^\]#]+?)\s*\]\]?\s*(#.*)?$")
_KEY = lazy_pattern(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_PART = lazy_pattern(r"[\w-]+|\"[^\"]*\"|'[^']*'")
_NAMED = lazy_pattern(
    r"at `\$((?:\.[\w-]+|\[[^\]]*\])+)`|(?:unknown key )?([\w-]+(?:\.[\w-]+)+)(?::|$| is )|unknown key (\S+)"
)
_ANY = "[...]"
"""What msgspec writes for a key of a table whose keys are free."""


def line_of(text: str, message: str) -> int:
    """Return the number of the line, counted from 1, that sets the key named by an error message.

    0 if the message names none, or if several lines could be meant.
    """
    match = _NAMED.search(message)
    if match is None:
        return 0
    wanted = _split(match[1]) if match[1] else tuple((match[2] or match[3]).split("."))
    while wanted:
        lines = [number for number, path in _paths(text) if _same(path, wanted)]
        if lines:
            return lines[0] if len(lines) == 1 else 0
        wanted = wanted[:-1]  # the key may be inside an inline table, or missing from its table
    return 0


def without_table(text: str, path: tuple[str, ...]) -> str:
    """Return the text without the lines of a table, from its header to its last key. Comments after that stay.

    A value of several lines is not recognised, so the caller has to compare what both texts mean.
    """
    numbers = [number for number, found in _paths(text) if found[: len(path)] == path]
    lines = text.splitlines(keepends=True)
    if not numbers:
        return text
    before, after = lines[: numbers[0] - 1], lines[numbers[-1] :]
    while before and after and not before[-1].strip() and not after[0].strip():
        after = after[1:]
    return "".join([*before, *after])


def line_of_key(text: str, path: tuple[str, ...], nth: int = 1) -> int:
    """Return the line that sets a key, or begins a table, for the ``nth`` time; 0 if there is none."""
    lines = [number for number, found in _paths(text) if found[: len(path)] == path]
    return lines[nth - 1] if len(lines) >= nth else 0


def line_in_table(text: str, table: str, nth: int, key: str) -> int:
    """Return the line of a key in the ``nth`` (from 0) of an array of tables, or without ``table`` in the whole text.

    If the key is not there, it is the line that begins the table; 0 if there is none.
    """
    if not table:
        return line_of_key(text, (key,))
    found = list(_paths(text))
    heads = [number for number, path in found if path == (table,)]
    if nth >= len(heads):
        return 0
    last = heads[nth + 1] if nth + 1 < len(heads) else len(text) + 1
    keys = [number for number, path in found if path[:2] == (table, key) and heads[nth] < number < last]
    return keys[0] if keys else heads[nth]


def _split(path: str) -> tuple[str, ...]:
    return tuple(_ANY if part.startswith("[") else part[1:] for part in re.findall(r"\.[\w-]+|\[[^\]]*\]", path))


def _same(path: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return len(path) == len(wanted) and all(asked in (part, _ANY) for part, asked in zip(path, wanted, strict=True))


def _paths(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each line that begins a table or sets a key, with the full path of it."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _parts(header[1])
            yield number, table
        elif key := _KEY.match(line):
            yield number, (*table, *_parts(key[1]))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(text))
