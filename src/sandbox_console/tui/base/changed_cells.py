"""Sends only the changed cells of redrawn lines to the terminal.

Textual sends the whole of every line that a widget redraws, 600 bytes at 120 columns: twenty rows in which one digit
changes each second are 24 kB/s over SSH.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from rich.cells import get_character_cell_size
from rich.console import Console
from rich.control import Control
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

Cell = tuple[str, Style | None]
GAP_CELLS = 6
"""Gaps of up to this many unchanged cells are sent too: moving the cursor and setting a style takes as many bytes."""


class ChangedCells:
    """Remembers the screen as last sent. After a new layout the whole screen is sent, which also repairs a terminal."""

    def __init__(self) -> None:
        self._there: dict[int, dict[int, Cell]] = {}

    def forget(self) -> None:
        """Treat the terminal's contents as unknown."""
        self._there.clear()

    def reduced(self, update: CompositorUpdate) -> CompositorUpdate:
        """Return the update without the cells that the screen already shows."""
        if isinstance(update, LayoutUpdate):
            self.forget()
            strips = [list(line) for line in update.strips]
            for y, line in enumerate(strips, update.region.y):
                self._take(y, update.region.x, line)
            return LayoutUpdate([iter(line) for line in strips], update.region)
        if isinstance(update, ChopsUpdate):
            return Pieces([piece for y, x, strip in _pieces(update) for piece in self._changed(y, x, strip)])
        self.forget()
        return update

    def _take(self, y: int, x: int, strips: Sequence[Strip]) -> None:
        for strip in strips:
            cells = _cells(strip)
            line = self._there.setdefault(y, {})
            for at in range(x, x + strip.cell_length):
                line.pop(at, None)
            line.update(enumerate(cells or (), x))
            x += strip.cell_length

    def _changed(self, y: int, x: int, strip: Strip) -> Iterator[tuple[int, int, Strip]]:
        """Yield the parts of a strip that differ, as (y, x, strip), or all of it if terminals may vary in its width."""
        cells = _cells(strip)
        line = self._there.setdefault(y, {})
        if cells is None:
            for at in range(x, x + strip.cell_length):
                line.pop(at, None)
            self._there.pop(y + 1, None)  # a terminal that draws the strip wider overflows into that row
            yield y, x, strip
            return
        other = [at for at, cell in enumerate(cells) if line.get(x + at) != cell]
        line.update(enumerate(cells, x))
        for first, last in _runs(other):
            yield y, x + first, strip.crop(first, last + 1)


class Pieces(CompositorUpdate):
    """Pieces of lines, each at its position."""

    def __init__(self, pieces: Sequence[tuple[int, int, Strip]]) -> None:
        self.pieces = pieces

    def render_segments(self, console: Console) -> str:
        """Return the text to write to the terminal."""
        return "".join(
            part for y, x, strip in self.pieces for part in (Control.move_to(x, y).segment.text, strip.render(console))
        )


def _pieces(update: ChopsUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Yield the pieces of lines as ChopsUpdate cuts them."""
    for y, first, last in update.spans:
        for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is not None and x <= last and end > first:
                yield y, x, strip if end <= last else strip.crop(0, min(end, last) - x)


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last place of each run. Nearby places are one run."""
    if not places:
        return
    first = last = places[0]
    for at in places[1:]:
        if at - last > GAP_CELLS:
            yield first, last
            first = at
        last = at
    yield first, last


def _cells(strip: Strip) -> list[Cell] | None:
    """Return the cells in order, or None if a character does not take exactly one cell."""
    found: list[Cell] = []
    for segment in strip:
        if segment.control or not _single(segment.text):
            return None
        found += [(char, segment.style) for char in segment.text]
    return found


@lru_cache(maxsize=4096)
def _single(text: str) -> bool:
    return text.isascii() or all(get_character_cell_size(char) == 1 for char in text)
