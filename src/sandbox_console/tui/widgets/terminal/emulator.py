"""The interface that the terminal widget needs from an emulator, and the conversion of its cells for Textual."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, Protocol

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment

from sandbox_console.model.pastes import clean_paste
from sandbox_console.model.text import clean

CHUNK = 64 * 1024
"""The bytes that are interpreted at a time: about 1 ms at 57 MB/s."""
MouseAction = Literal["press", "release", "motion"]


Point = tuple[int, int]
"""A column, and a row counted from the oldest line of the scrollback."""


class Span(Struct, frozen=True):
    """The cells from ``start`` to ``end``, both included."""

    start: Point
    end: Point


class Matches(Protocol):
    """What a search has found."""

    @property
    def count(self) -> int:
        """The number of matches."""
        ...

    @property
    def index(self) -> int:
        """The number of the selected match, from 1 at the oldest. 0 if there is none."""
        ...

    def step(self, direction: int) -> Span | None:
        """Select the next match towards older lines (-1) or newer ones (1), around the end. Scrolls to it."""
        ...


class Cursor(Struct, frozen=True):
    """Where the cursor is in the viewport, and how many cells it covers."""

    x: int
    y: int
    width: int


class Emulator(Protocol):
    """A screen of cells that interprets bytes. All calls are synchronous, and none writes to a real terminal."""

    cols: int
    rows: int

    def feed(self, data: bytes) -> bytes:
        """Interpret output of the guest. Returns the terminal's reply, such as a cursor report."""
        ...

    def resize(self, cols: int, rows: int) -> None:
        """Change the size. Both are at least 1. The primary screen is rewrapped."""
        ...

    def refresh(self) -> Sequence[int]:
        """Update the viewport from the bytes fed so far. Returns its rows that changed since the last call."""
        ...

    def line(self, y: int) -> Sequence[Segment]:
        """Return a row of the viewport as of the last refresh(), exactly ``cols`` cells wide as Rich measures it."""
        ...

    def text(self) -> str:
        """Return the viewport as of the last refresh(), one line per row, without trailing blanks."""
        ...

    @property
    def cursor(self) -> Cursor | None:
        """The cursor, or None while it is hidden or scrolled out of view."""
        ...

    @property
    def mouse_wanted(self) -> bool:
        """Whether the guest has requested mouse events."""
        ...

    @property
    def alternate_screen(self) -> bool:
        """Whether a full-screen program uses the screen."""
        ...

    @property
    def title(self) -> str:
        """The title that the guest has set, hostile and as it is; cut to a few hundred characters."""
        ...

    @property
    def bells(self) -> int:
        """How often the guest has rung the bell."""
        ...

    @property
    def scrolled(self) -> int:
        """The number of lines that the viewport is above the newest."""
        ...

    def scroll(self, lines: int) -> None:
        """Move the viewport through the scrollback, up if negative."""
        ...

    def scroll_end(self) -> None:
        """Move the viewport to the newest lines."""
        ...

    @property
    def top(self) -> int:
        """The row of the oldest line in the viewport, counted from the oldest of the scrollback."""
        ...

    @property
    def total(self) -> int:
        """The number of rows of scrollback and screen."""
        ...

    def scroll_to(self, row: int) -> None:
        """Move the viewport so that a row, counted from the oldest, is its first; or as near as there are rows."""
        ...

    def freeze(self) -> Emulator:
        """Return a copy that does not change any more, with the same viewport. The caller closes it."""
        ...

    def duplicate(self) -> Emulator:
        """Return a copy that can be fed. It answers nothing. The caller closes it."""
        ...

    def text_between(self, span: Span, *, block: bool = False) -> str:
        """Return the text of a span: soft-wrapped lines joined, trailing blanks cut. ``block`` means a rectangle."""
        ...

    def word_at(self, at: Point) -> Span | None:
        """Return the word at a cell."""
        ...

    def link_at(self, at: Point) -> str:
        """Return the address that the guest has set for a cell (OSC 8), hostile and as it is, or an empty string."""
        ...

    def search(self, wanted: str) -> Matches:
        """Return the matches of a text, ignoring case. Only for a copy that does not change any more."""
        ...

    def key(self, name: str, character: str | None) -> bytes:
        """Return the bytes of a key, given Textual's name for it, in the modes that the guest has set."""
        ...

    def paste(self, text: str) -> bytes:
        """Return the bytes of a paste, bracketed if the guest has requested it."""
        ...

    def mouse(self, action: MouseAction, button: int, x: int, y: int, mods: frozenset[str]) -> bytes:
        """Return the bytes of a mouse event at a cell. Buttons are xterm's: 1 left to 3 right, 4-5 wheel, 0 none."""
        ...

    def close(self) -> None:
        """Free the emulator. Can be called twice."""
        ...


def paste_bytes(text: str, *, bracketed: bool) -> bytes:
    """Return a paste without the marks and controls that could end its brackets early and type commands."""
    body = clean_paste(text).replace("\r\n", "\r").replace("\n", "\r")
    data = body.encode("utf-8", "replace")
    return b"\x1b[200~" + data + b"\x1b[201~" if bracketed else data


@lru_cache(maxsize=4096)
def refit(cluster: str, width: int) -> str:
    """Return a cell's characters, adjusted to measure ``width`` cells in Rich, which lays out the screen.

    If the emulator and Rich disagree, as on joined emoji, flags and variation selectors, only the base character is
    shown. One that Rich cannot show in that width, or that would act on the terminal, becomes a question mark.
    """
    for text in (cluster, cluster[:1]):
        if clean(text) == text and cell_len(text) == width:
            return text
    base = cluster[:1]
    if clean(base) == base and cell_len(base) == 1 and width == 2:
        return base + " "
    return "\N{REPLACEMENT CHARACTER}".ljust(width)
