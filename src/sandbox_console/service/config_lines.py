"""Finds the line of a configuration file that an error is about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox_console.model.late_pattern import late_pattern

_HEADER = late_pattern(r"\s*\[\[?\s*([^\]#]+?)\s*\]\]?\s*(#.*)?$")
_KEY = late_pattern(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_PART = late_pattern(r"[\w-]+|\"[^\"]*\"|'[^']*'")
_NAMED = late_pattern(
    r"at `\$((?:\.[\w-]+|\[[^\]]*\])+)`|(?:unknown key )?([\w-]+(?:\.[\w-]+)+)(?::|$| is )|unknown key (\S+)"
)
_ANY = "[...]"
"""What msgspec writes for a key of a table whose keys are free."""


def line_of(text: str, message: str) -> int:
    """Return the number of the line, counted from 1, that sets the key named by an error message.

    0 if the message names none, or if several lines could be meant.
    """
    found = _NAMED.search(message)
    if found is None:
        return 0
    wanted = _split(found[1]) if found[1] else tuple((found[2] or found[3]).split("."))
    while wanted:
        lines = [number for number, path in _paths(text) if _same(path, wanted)]
        if lines:
            return lines[0] if len(lines) == 1 else 0
        wanted = wanted[:-1]  # the key may be inside an inline table, or missing from its table
    return 0


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
