"""The status line of a log: whether it follows, how much is shown, and how much memory it uses."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from sandbox_console.logs.index import LineIndex
from sandbox_console.logs.store import LineStore
from sandbox_console.model.text import clean
from sandbox_console.tui.text.formatting import size
from sandbox_console.tui.widgets.log.log_line import StyleOf
from sandbox_console.tui.widgets.log.log_lines import ShownLines

_BRIEFER = (
    "",
    "legend",
    "legend memory",
    "legend memory pattern",
    "legend memory place",
    "legend memory place pattern",
)
"""What is left out of the line, the first that fits."""


def status_segments(
    lines: ShownLines,
    *,
    stream: str,
    is_open: bool,
    follow: bool,
    last: int,
    match: int | None,
    older: str,
    width: int,
    style_of: StyleOf,
) -> list[Segment]:
    """Return ``FOLLOWING [n/shown]`` or another state of the stream, followed by what else the user must know.

    If that is wider than ``width``, what matters least is left out.
    """
    base: Style = style_of("status")
    word, style = (stream, "following") if follow else ("PAUSED", "paused")
    if not is_open:
        word, style = stream, "over"
    text = ""
    for without in _BRIEFER:
        text = "  ".join(_parts(lines, last, match, older, without))
        if cell_len(word) + cell_len(text) <= width:
            break
    return [Segment(word, base + style_of(style)), Segment(text, base)]


def _parts(lines: ShownLines, last: int, match: int | None, older: str, without: str) -> Iterator[str]:
    store = lines.store
    yield f" [{last:,}/{lines.shown:,}]" if "place" not in without else ""
    if (share := lines.looked_through) < 1:
        yield f"looking {share:.0%}…"
    if lines.filter is not None:
        yield f"filtered from {lines.total:,}{_pattern(lines.filter, without)}"
    if lines.search is not None:
        at = lines.search.row_of(match) + 1 if match is not None else 0
        yield f"match {at:,}/{len(lines.search):,}{_pattern(lines.search, without)}"
    if older:
        yield older
    if store.holes and (lines.filter is not None or lines.search is not None):
        yield f"{_holes(store)} not looked at"
    if store.dropped:
        yield f"{store.dropped:,} older dropped"
    if "memory" not in without:
        yield f"{size(store.size_bytes)} of {size(store.cap_bytes)}"
    if "legend" not in without:
        yield "E = stderr"


def _pattern(index: LineIndex, without: str) -> str:
    return f": {clean(index.pattern.text, cap=24)}" if "pattern" not in without else ""


def _holes(store: LineStore) -> str:
    known = [lines for lines in store.holes.values() if lines is not None]
    return f"{sum(known):,} lines of a gap" if len(known) == len(store.holes) else "a gap"
