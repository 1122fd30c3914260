"""The chosen columns, saved across runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

from sandbox_console.errors import UsageError
from sandbox_console.tui.base.saved_json import read_saved
from sandbox_console.tui.base.saved_json import save as save_file
from sandbox_console.tui.fleet.columns import BY_KEY, LEAST_WIDTH, MOST_WIDTH, Chosen, choose


class ColumnChoice:
    """``chosen`` are the columns shown now: the saved ones, or those of a view."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "columns.json"
        self.chosen = _read(self._file)

    def set(self, chosen: Chosen, *, save: bool) -> None:
        """Show these columns. If writing to disk fails, they are only not saved."""
        self.chosen = chosen
        if save:
            with contextlib.suppress(OSError):
                save_file(self._file, {"columns": list(chosen.keys), "widths": dict(chosen.widths)})


def _read(file: Path) -> Chosen:
    kept = read_saved(file, lambda kept: isinstance(kept.get("columns"), list) and isinstance(kept.get("widths"), dict))
    if not kept:
        return Chosen()
    names, widths = kept["columns"], kept["widths"]
    good = [(key, size) for key, size in widths.items() if key in BY_KEY and isinstance(size, int)]
    clamped = [(key, min(MOST_WIDTH, max(LEAST_WIDTH, size))) for key, size in good]
    try:
        return choose([name for name in names if isinstance(name, str)], clamped)
    except UsageError:
        return Chosen()
