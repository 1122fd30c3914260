"""Wraps lines at words, with continuation lines indented."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len, set_cell_size

from sandbox_console.model.text import LINE_CAP, clean

Part = tuple[str, str]
_WORD = re.compile(r"\s+|\S+")


def set_in(text: str, indent: int) -> str:
    """Return a text, cleaned, with each line after the first indented by ``indent`` cells."""
    over = len(text) - LINE_CAP
    lines = text[:LINE_CAP].split("\n")
    return f"\n{' ' * indent}".join(map(clean, lines)) + (f"…[+{over}]" if over > 0 else "")


def hanging(parts: Iterable[Part], width: int, indent: int) -> Iterator[Part]:
    """Yield parts of lines as rows of at most ``width`` cells. Nothing is wrapped if that leaves no room."""
    indent = min(indent, width // 2)
    folded = parts if width - indent < 8 else _folded(parts, width, indent)
    for style, run in groupby(folded, key=itemgetter(1)):
        yield "".join(text for text, _ in run), style


def _folded(parts: Iterable[Part], width: int, indent: int) -> Iterator[Part]:
    column = 0
    for text, style in parts:
        for number, line in enumerate(text.split("\n")):
            if number:
                yield "\n", ""
                column = 0
            for word in _WORD.findall(line):
                for piece in _fitted(word, column, width, indent):
                    column = indent if piece == "\n" else column + cell_len(piece)
                    yield (f"\n{' ' * indent}", "") if piece == "\n" else (piece, style)


def _fitted(word: str, column: int, width: int, indent: int) -> Iterator[str]:
    """Yield a word, with line breaks before it and, if it is longer than a row, inside it."""
    if column + cell_len(word) <= width:
        yield word
        return
    if column > indent:
        yield "\n"
        column = indent
        if word.isspace():
            return
    while cell_len(word) > width - column:
        head = set_cell_size(word, width - column).rstrip(" ") or word[:1]
        yield head
        word = word[len(head) :]
        yield "\n"
        column = indent
    if word:
        yield word
