"""The status line of a log: whether it follows, how much is shown, and how much memory it uses."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from sandbox_console.logs.index import LineIndex
from sandbox_console.logs.store import LineStore
from sandbox_console.model.text import clean
from sandbox_console.tui.text.formatting import size
from sandbox_console.tui.widgets.log.log_line import StyleOf
from sandbox_console.tui.widgets.log.log_lines import ShownLines


def status_segments(
    lines: ShownLines,
    *,
    stream: str,
    is_open: bool,
    follow: bool,
    last: int,
    match: int | None,
    older: str,
    style_of: StyleOf,
) -> list[Segment]:
    """Return ``FOLLOWING [n/shown]`` or another state of the stream, followed by what else the user must know."""
    base: Style = style_of("status")
    word, style = (stream, "following") if follow else ("PAUSED", "paused")
    if not is_open:
        word, style = stream, "over"
    store = lines.store
    parts = [f" [{last:,}/{lines.shown:,}]"]
    if (share := lines.looked_through) < 1:
        parts.append(f"looking {share:.0%}…")
    if lines.filter is not None:
        parts.append(f"filtered from {lines.total:,}{_pattern(lines.filter)}")
    if lines.search is not None:
        at = lines.search.row_of(match) + 1 if match is not None else 0
        parts.append(f"match {at:,}/{len(lines.search):,}{_pattern(lines.search)}")
    if older:
        parts.append(older)
    if store.holes and (lines.filter is not None or lines.search is not None):
        parts.append(f"{_holes(store)} not looked at")
    if store.dropped:
        parts.append(f"{store.dropped:,} older dropped")
    parts.append(f"{size(store.size_bytes)} of {size(store.cap_bytes)}")
    parts.append("E = stderr")
    return [Segment(word, base + style_of(style)), Segment("  ".join(parts), base)]


def _pattern(index: LineIndex) -> str:
    return f": {clean(index.pattern.text, cap=24)}"


def _holes(store: LineStore) -> str:
    known = [lines for lines in store.holes.values() if lines is not None]
    return f"{sum(known):,} lines of a gap" if len(known) == len(store.holes) else "a gap"
