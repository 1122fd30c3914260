"""One log line as segments: cleaned, its colours kept, its stream marked, matches shown."""

from __future__ import annotations

import re
from datetime import datetime

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from sandbox_console.logs.store import GAP, STDERR, Line
from sandbox_console.model.text import clean

MARKS = {STDERR: "E", GAP: "~"}
"""Told by a letter, not by colour alone."""
TAB = 8
# A guest must not hide text from the reader, nor blink at them.
_SHOWN = Style(conceal=False, blink=False, blink2=False)
_MATCH = Style(reverse=True, bold=True)


def line_text(line: Line) -> Text:
    """What a line says, made safe: nothing of ANSI but its colours acts."""
    raw = clean(line.data.rstrip(b"\r\n"), keep_sgr=True)
    if "\x1b" not in raw:
        return Text(raw.expandtabs(TAB), end="")
    text = AnsiDecoder().decode_line(raw)
    text.end = ""
    text.expand_tabs(TAB)
    text.stylize(_SHOWN)
    return text


def prefix(line: Line, *, timestamps: bool) -> str:
    """What stands before a line: the time of day it was written (local), and the mark of its stream."""
    mark = MARKS.get(line.kind, " ")
    if not timestamps:
        return f"{mark} "
    at = datetime.fromtimestamp(line.at_ns / 1e9).astimezone()
    return f"{at:%H:%M:%S}.{line.at_ns // 1_000_000 % 1000:03} {mark} "


def highlight(text: Text, pattern: re.Pattern[bytes]) -> None:
    """Mark what a search finds, as far as it stands in the text that is shown."""
    try:
        shown = re.compile(pattern.pattern.decode("utf-8", "surrogatepass"), pattern.flags & re.IGNORECASE)
    except (re.error, UnicodeDecodeError):  # bytes that are no text, such as \\xff
        return
    for match in shown.finditer(text.plain):
        text.stylize(_MATCH, match.start(), match.end())


def segments(text: Text, base: Style) -> list[Segment]:
    """The runs of a text over a base style."""
    if not text.spans:
        return [Segment(text.plain, base)]
    return [Segment(part.plain, base + _style_of(part)) for part in text.divide(_cuts(text))]


def _cuts(text: Text) -> list[int]:
    edges = {edge for span in text.spans for edge in (span.start, span.end)}
    return sorted(edge for edge in edges if 0 < edge < len(text.plain))


def _style_of(part: Text) -> Style:
    return Style.combine([Style.null(), *(span.style for span in part.spans if isinstance(span.style, Style))])


def wrapped(runs: list[Segment], width: int) -> list[list[Segment]]:
    """Segments folded to rows of at most ``width`` cells."""
    rows: list[list[Segment]] = [[]]
    room = width
    for run in runs:
        rest = run
        while (size := cell_len(rest.text)) > room:
            head, rest = rest.split_cells(room)
            rows[-1].append(head)
            rows.append([])
            room = width
        rows[-1].append(rest)
        room -= size
    return rows
