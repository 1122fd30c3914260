"""The columns of the list: which exist, their widths, and which the user chose, in order, saved across runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from sandbox_console.errors import UsageError
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.tui.base.saved_json import read_saved
from sandbox_console.tui.base.saved_json import save as save_file
from sandbox_console.tui.widgets.table.table_layout import Column

LEAST_WIDTH, MOST_WIDTH = 3, 80
COLUMNS = (
    Column("state", "STATE", 11, 12, priority=0),
    Column("name", "NAME", 14, 32, priority=0, flex=True),
    Column("backend", "BACKEND", 12, 20, priority=4),
    Column("host", "HOST", 6, 20, priority=12),
    Column("maker", "MAKER", 6, 16, priority=11),
    Column("image", "IMAGE", 12, 28, priority=5),
    Column("cpu", "CPU", 8, 11, align="right", priority=1, largest=True, graph=True),
    Column("memory", "MEM", 6, 17, align="right", priority=1, largest=True, graph=True),
    Column("net", "NET", 7, 15, align="right", priority=8, largest=True),
    Column("disk", "DISK", 7, 15, align="right", priority=16, largest=True),
    Column("log", "LOG/S", 6, 9, align="right", priority=15, largest=True),
    Column("egress", "EGRESS", 7, 40, priority=6, largest=True),
    Column("ports", "PORTS", 11, 40, priority=7),
    Column("secrets", "SECR", 4, 6, align="right", priority=9, largest=True),
    Column("restarts", "RST", 3, 5, align="right", priority=10, largest=True),
    Column("age", "AGE", 5, 6, align="right", priority=3),
    Column("exit", "WHY", 21, 44, priority=2, flex=True),
    Column("labels", "LABELS", 10, 40, priority=13),
    Column("id", "ID", 12, 12, priority=14),
)
BY_KEY = {column.key: column for column in COLUMNS}
USUAL = ("state", "name", "backend", "maker", "image", "cpu", "memory", "net", "egress", "secrets", "age", "exit")
"""The columns that are shown by default."""
SAMPLED_COLUMNS = frozenset({"cpu", "memory", "net", "disk", "log"})
"""The columns whose values come from samples."""
ALIASES = {"why": "exit", "mem": "memory", "network": "net", "status": "state", "secr": "secrets", "label": "labels",
           "port": "ports"}  # fmt: skip


class Chosen(Struct, frozen=True):
    """Columns in order, with the widths that the user set."""

    keys: tuple[str, ...] = USUAL
    widths: tuple[tuple[str, int], ...] = ()

    def columns(self, *, everything: bool = False) -> tuple[Column, ...]:
        """Return the columns for the table. ``everything`` adds those not chosen, at the end."""
        keys = (*self.keys, *(key for key in BY_KEY if key not in self.keys)) if everything else self.keys
        widths = dict(self.widths)
        return tuple(_sized(BY_KEY[key], widths.get(key)) for key in keys)


def _sized(column: Column, width: int | None) -> Column:
    if width is None:
        return column
    return structs.replace(column, min_width=width, max_width=width, flex=False)


def column_key(word: str) -> str:
    """Return the key of a column, given its key, title or alias. Raises UsageError, which names the nearest match."""
    word = word.lower()
    known = {**ALIASES, **{column.title.lower(): column.key for column in COLUMNS}, **{key: key for key in BY_KEY}}
    if word in known:
        return known[word]
    near = nearest(word, known)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(BY_KEY)}"
    raise UsageError(f"no column {word!r}: {hint}", hint=hint)


def choose(words: Iterable[str], widths: Sequence[tuple[str, int]] = ()) -> Chosen:
    """Return the columns that the words name. State and name are always included. Raises UsageError."""
    keys = [column_key(word) for word in words]
    keys = [*(key for key in ("state", "name") if key not in keys), *keys]
    return Chosen(tuple(dict.fromkeys(keys)), tuple(widths))


class ColumnChoice:
    """The columns of the list. ``chosen`` are those shown now: the saved ones, or those of a view."""

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
