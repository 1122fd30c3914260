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

MouseAction = Literal["press", "release", "motion"]


class Cursor(Struct, frozen=True):
    """Where the cursor is in the viewport, and how many cells it covers."""

    x: int
    y: int
    width: int


class Emulator(Protocol):
    """A screen of cells that interprets bytes. All calls are synchronous, and none writes to a real terminal."""

    cols: int
    rows: int
    answers: bool
    """Whether it answers the guest's queries. A kept shell's holder does that itself."""

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
    def scrolled(self) -> int:
        """The number of lines that the viewport is above the newest."""
        ...

    def scroll(self, lines: int) -> None:
        """Move the viewport through the scrollback, up if negative."""
        ...

    def scroll_end(self) -> None:
        """Move the viewport to the newest lines."""
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
