"""Text for people: tables aligned by display width, and times."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sandbox_console.model.text import clean

_CELL_CAP = 120
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def width(text: str) -> int:
    """The columns that a text takes: two for wide East Asian characters and emoji, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of an aligned table. Every cell is cleaned."""
    return Columns(head).lines(rows)


class Columns:
    """A table that is printed in parts. Later rows keep the columns of the first where they fit."""

    def __init__(self, head: Sequence[str], *, header: bool = True) -> None:
        self._head: list[list[str]] = [list(head)] if header else []
        self._widths = [0] * len(head)

    def lines(self, rows: Iterable[Sequence[str]]) -> list[str]:
        """The lines of the next rows, the first time with the head. Every cell is cleaned."""
        cells = [*self._head, *([clean(cell, cap=_CELL_CAP) for cell in row] for row in rows)]
        self._head = []
        columns = zip(self._widths, zip(*cells, strict=True), strict=True) if cells else ()
        self._widths = [max(before, *map(width, column)) for before, column in columns] or self._widths
        return [_aligned(row, self._widths) for row in cells]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(map(_padded, row, widths)).rstrip()


def _padded(cell: str, size: int) -> str:
    return cell.ljust(size) if cell.isascii() else cell + " " * (size - width(cell))


def duration(seconds: float | None) -> str:
    """A duration like ``42s``, ``5m``, ``3h`` or ``12d``; ``-`` if it is not known."""
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def moment(at: float | None) -> str:
    """A time since the epoch as ISO 8601, UTC, to the second; ``-`` if it is not known."""
    return "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_ns(at_ns: int) -> str:
    """A time in nanoseconds since the epoch as ISO 8601, UTC, to the microsecond."""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


def size(count: float | None) -> str:
    """Bytes like ``1.5 GiB``; ``-`` if not known."""
    if count is None:
        return "-"
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
