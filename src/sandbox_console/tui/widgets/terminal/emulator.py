"""What the terminal widget needs of an emulator, and how its cells become Textual's."""

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
    """A screen of cells that bytes are fed to. All calls are synchronous; none writes to a real terminal."""

    cols: int
    rows: int

    def feed(self, data: bytes) -> bytes:
        """Interpret output of the guest; returns what the terminal answers to it (a cursor report, say)."""
        ...

    def resize(self, cols: int, rows: int) -> None:
        """Change the size, both at least 1; the primary screen is rewrapped."""
        ...

    def refresh(self) -> Sequence[int]:
        """Take over what was fed; returns the rows of the viewport that differ since the last call."""
        ...

    def line(self, y: int) -> Sequence[Segment]:
        """A row of the viewport as of the last refresh(), exactly ``cols`` cells wide by Rich's measure."""
        ...

    def text(self) -> str:
        """The viewport as of the last refresh(), a line a row, without trailing blanks."""
        ...

    @property
    def cursor(self) -> Cursor | None:
        """None while it is hidden or scrolled out of sight."""
        ...

    @property
    def mouse_wanted(self) -> bool:
        """Whether the guest asked for mouse events."""
        ...

    @property
    def alternate_screen(self) -> bool:
        """Whether a full-screen program has the screen."""
        ...

    @property
    def scrolled(self) -> int:
        """How many lines the viewport is above the newest."""
        ...

    def scroll(self, lines: int) -> None:
        """Move the viewport over the scrollback: up where negative."""
        ...

    def scroll_end(self) -> None:
        """Move the viewport to the newest lines."""
        ...

    def key(self, name: str, character: str | None) -> bytes:
        """The bytes of a key by Textual's name for it, in the modes that the guest has set."""
        ...

    def paste(self, text: str) -> bytes:
        """The bytes of a paste, bracketed where the guest asked for that."""
        ...

    def mouse(self, action: MouseAction, button: int, x: int, y: int, mods: frozenset[str]) -> bytes:
        """The bytes of a mouse event at a cell; buttons are xterm's: 1 left to 3 right, 4 and 5 the wheel, 0 none."""
        ...

    def close(self) -> None:
        """Free it. Safe to call twice."""
        ...


def paste_bytes(text: str, *, bracketed: bool) -> bytes:
    """A paste without the marks and controls by which it could end its brackets early and type commands."""
    body = clean_paste(text).replace("\r\n", "\r").replace("\n", "\r")
    data = body.encode("utf-8", "replace")
    return b"\x1b[200~" + data + b"\x1b[201~" if bracketed else data


@lru_cache(maxsize=4096)
def refit(cluster: str, width: int) -> str:
    """A cell's characters, made to measure ``width`` cells in Rich, which lays the screen out.

    Emulators and Rich disagree about joined emoji, flags and variation selectors; then the base
    character is shown alone. One that Rich cannot show in that width, or that acts, is a question mark.
    """
    for text in (cluster, cluster[:1]):
        if clean(text) == text and cell_len(text) == width:
            return text
    base = cluster[:1]
    if clean(base) == base and cell_len(base) == 1 and width == 2:
        return base + " "
    return "\N{REPLACEMENT CHARACTER}".ljust(width)
