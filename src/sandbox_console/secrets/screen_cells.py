"""Characters in the columns of a terminal, and what follows them on a screen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from sandbox_console.model.lazy_pattern import lazy_pattern
from sandbox_console.secrets.visible_text import LETTER, width

Cells = Sequence[bytes]
"""Characters by column; the second column of a wide one is empty."""

Form = Sequence[tuple[bytes, int]]
"""A value in one of its encodings: each character and its column."""


class Values(Protocol):
    """The values that are searched for: the redactor."""

    def cells(self) -> Sequence[Form]:
        """All forms of the values. The same object until another value is added."""

    def hits(self, data: bytes) -> Sequence[tuple[int, int]]:
        """Where values are in bytes."""


class Page(Protocol):
    """One of a terminal's two screens."""

    column: int

    def put(self, cells: Cells, text: bytes) -> Cells:
        """Write characters, which are ``text`` in bytes. Returns what may be shown of them."""

    def shift(self, how: int, count: int) -> bool:
        """Delete, insert, erase within the row. Returns False, without doing it, if a value would be completed."""

    def vertical(self, how: bytes, numbers: Sequence[int]) -> None:
        """Obey a code that moves the cursor or the rows."""

    def wipe(self) -> None:
        """Erase the whole screen."""


_LETTERS = lazy_pattern(LETTER + rb"|.", re.DOTALL)


def form_of(value: bytes) -> Form:
    """The characters of a value and their columns."""
    form, column = [], 0
    for letter in _LETTERS.findall(value):
        if wide := width(letter) if letter[0] > 0x7F else 1:
            form.append((letter, column))
        column += wide
    return form


def starred(cells: Cells, hidden: Iterable[int], star: bytes) -> list[bytes]:
    """The cells with a star in place of each that is hidden, and of both halves of a wide one."""
    done = list(cells)
    for at in hidden:
        done[at] = star
        if at + 1 < len(done) and done[at + 1] == b"":
            done[at + 1] = star
        if not cells[at] and at:
            done[at - 1] = star
    return done
