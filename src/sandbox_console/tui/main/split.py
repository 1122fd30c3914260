"""How the list and the detail share the screen: stacked or side by side, with sizes that are saved."""

from __future__ import annotations

import contextlib
from pathlib import Path

from textual.screen import Screen

from sandbox_console.tui.base.saved_json import read_saved, save

STEP, LEAST, MOST = 5, 20, 80
_BESIDE = 50
_HEADING = 3
_LEAST_ROWS = 8
_LEAST_BELOW = 14
"""Rows below and above the list: the detail, with ten rows of its own, the header, and the keys."""


class Split:
    """How the screen is divided. ``share`` is the list's percentage.

    It is None until the line is moved, so that a short list leaves room.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "layout.json"
        kept = read_saved(self._file, lambda kept: isinstance(kept.get("share"), int | None))
        share = kept.get("share")
        self.side = bool(kept.get("side"))
        self.share: int | None = min(MOST, max(LEAST, int(share))) if isinstance(share, int) else None

    def turn(self) -> None:
        """Switch between side by side and stacked."""
        self.side = not self.side
        self._keep()

    def move(self, step: int, now: int, height: int) -> None:
        """Make the detail larger by ``step`` times 5 %. ``now`` is the list's current share of ``height`` rows."""
        limit = MOST if self.side else min(MOST, max(LEAST, (height - _LEAST_BELOW) * 100 // max(1, height)))
        share = min(limit, self.share) if self.share is not None else now
        self.share = min(limit, max(LEAST, share - step * STEP))
        self._keep()

    def _keep(self) -> None:
        """Save the layout. If writing to disk fails, it is only not saved."""
        with contextlib.suppress(OSError):
            save(self._file, {"side": self.side, "share": self.share})

    def apply(self, screen: Screen[None], rows: int) -> None:
        """Lay out the screen for a list with this number of rows."""
        both = screen.has_class("-wide") and rows > 0
        screen.set_class(both and self.side, "-side")
        list_pane = screen.query_one("#list")
        share = self.share if self.share is not None else _BESIDE
        if both and self.side:
            screen.styles.grid_columns = f"{share}fr {100 - share}fr"
        height = screen.size.height
        limit = min(height - _LEAST_BELOW, height * (self.share if self.share is not None else 45) // 100)
        wanted = limit if self.share is not None else min(rows + _HEADING, limit)
        list_pane.styles.height = max(_LEAST_ROWS, wanted) if both and not self.side else "1fr"
