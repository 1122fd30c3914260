"""Draws a page of log lines. Only visible lines are parsed, and the most recent ones are cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from sandbox_console.logs.store import Line
from sandbox_console.model.text import clean
from sandbox_console.tui.widgets.log.log_line import (
    NAME_WIDTH,
    Rule,
    StyleOf,
    body_text,
    highlight,
    is_match,
    prefix,
    segments,
    spread_texts,
    wrapped,
)
from sandbox_console.tui.widgets.log.log_lines import ShownLines
from sandbox_console.tui.widgets.table.table_layout import fit_cell

ScrollPosition = tuple[int, int]
"""The scroll position: the top row, and how many strips of its line are above the view."""

_KEPT = 1024
COLOURS = 6

_PARTS = (
    *("status", "following", "paused", "over", "prefix", "gap", "mark", "key"),
    *("error", "fatal", "warn", "quiet", "info", "ok", "accent"),
)
LOG_PARTS = {f"log--{name}" for name in (*_PARTS, *(f"name-{at}" for at in range(COLOURS)))}
"""The component classes that `LOG_CSS` colours."""

LOG_CSS = """
LogCanvas { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
LogCanvas > .log--status { background: $panel; color: $text-muted; }
LogCanvas > .log--following { color: $text-success; text-style: bold; }
LogCanvas > .log--paused { color: $text-warning; text-style: bold; }
LogCanvas > .log--over { color: $text; text-style: bold; }
LogCanvas > .log--error { color: $text-error; }
LogCanvas > .log--fatal { color: $text-error; text-style: bold reverse; }
LogCanvas > .log--warn { color: $text-warning; }
LogCanvas > .log--quiet { color: $text-muted; }
LogCanvas > .log--info { color: $text-success; }
LogCanvas > .log--ok { color: $text-success; }
LogCanvas > .log--accent { color: $text-accent; text-style: bold; }
LogCanvas > .log--key { color: $text-accent; }
LogCanvas > .log--gap { color: $text-warning; text-style: italic; }
LogCanvas > .log--mark { color: $text-primary; text-style: bold; }
LogCanvas > .log--prefix { color: $text-muted; }
LogCanvas > .log--name-0 { color: $text-primary; }
LogCanvas > .log--name-1 { color: $text-success; }
LogCanvas > .log--name-2 { color: $text-warning; }
LogCanvas > .log--name-3 { color: $text-accent; }
LogCanvas > .log--name-4 { color: $text-error; }
LogCanvas > .log--name-5 { color: $text-secondary; }
"""


class DisplayOptions(Struct):
    """How the user wants lines to be drawn. ``names`` are the names of several sources, by number."""

    timestamps: bool = False
    wrap: bool = False
    json: bool = True
    side: int = 0
    selected: int | None = None
    expanded: set[int] = field(default_factory=set)
    names: Sequence[str] = ()
    rules: Sequence[Rule] = ()

    @property
    def tall(self) -> bool:
        """Whether a line may take several rows."""
        return self.wrap or bool(self.expanded)


class LogPage:
    """Strips of lines. ``width``, ``base`` and ``style_of`` belong to the widget: set them before drawing.

    ``dated`` means that times include the day.
    """

    def __init__(self, lines: ShownLines, look: DisplayOptions) -> None:
        self.lines = lines
        self.look = look
        self.width = 80
        self.dated = False
        self.base = Style.null()
        self.style_of: StyleOf = lambda _: Style.null()
        self._bodies: dict[int, list[list[Segment]]] = {}

    def forget(self) -> None:
        """Clear the cache, because lines look different now."""
        self._bodies.clear()

    def down(self, top: int, height: int, skip: int = 0) -> Iterator[tuple[int, Strip]]:
        """Yield at most ``height`` strips from a row on, without its first ``skip``, each with its line number."""
        left = height
        for row in range(top, self.lines.shown):
            line = self.lines.line_at(row)
            strips = self._strips(line)
            first = min(skip, len(strips) - 1) if row == top else 0
            for strip in strips[first : first + left]:
                yield line.number, strip
                left -= 1
            if left <= 0:
                return

    def up(self, height: int) -> list[tuple[int, Strip]]:
        """Return the last ``height`` strips of the newest lines."""
        row, skip = self.end(height)
        return list(self.down(row, height, skip))

    def count(self, row: int) -> int:
        """Return the number of strips of a row's line."""
        return len(self._strips(self.lines.line_at(row)))

    def match_in(self, row: int) -> int:
        """Return which strip of a line has the first match of the search, or 0 if none shows it."""
        line = self.lines.line_at(row)
        found = (at for at, runs in enumerate(self._body_rows(line, self._head(line))) if any(map(is_match, runs)))
        return next(found, 0)

    def end(self, height: int) -> ScrollPosition:
        """Return the position at which the newest strip is the last visible one."""
        used = 0
        for row in range(self.lines.shown - 1, -1, -1):
            used += self.count(row)
            if used >= height:
                return row, used - height
        return 0, 0

    def moved(self, position: ScrollPosition, by: int) -> ScrollPosition:
        """Return the position ``by`` strips below a place, or above it if negative, within the lines."""
        row, skip = position
        skip = min(skip, self.count(row) - 1) + by
        while skip < 0 < row:
            row -= 1
            skip += self.count(row)
        while row < self.lines.shown - 1 and skip >= (count := self.count(row)):
            row, skip = row + 1, skip - count
        return row, max(0, skip)

    def _strips(self, line: Line) -> list[Strip]:
        head = self._head(line)
        blank = [Segment(" " * _cells(head), self.base)]
        strips = []
        for at, runs in enumerate(self._body_rows(line, head)):
            strip = Strip([*(head if at == 0 else blank), *runs])
            strips.append(strip.adjust_cell_length(self.width, self.base))
        return strips

    def _body_rows(self, line: Line, head: list[Segment]) -> list[list[Segment]]:
        room = max(1, self.width - _cells(head))
        bodies = self._body(line)
        if self.look.wrap:
            return [row for body in bodies for row in wrapped(body, room)]
        return [list(Strip(body).crop(self.look.side)) for body in bodies] if self.look.side else bodies

    def _head(self, line: Line) -> list[Segment]:
        style = self.style_of("prefix")
        chosen = line.number == self.look.selected
        text = prefix(line, timestamps=self.look.timestamps, dated=self.dated)
        found = [
            Segment(text[:-1] + "▸" if chosen else text, style + Style(bold=True, reverse=True) if chosen else style)
        ]
        if self.look.names:
            name = clean(self.look.names[line.source], cap=200) if line.source < len(self.look.names) else "?"
            width = min(NAME_WIDTH, max(map(cell_len, self.look.names)))
            found.append(Segment(fit_cell(name, width, "left") + " ", self.style_of(f"name-{line.source % COLOURS}")))
        return found

    def _body(self, line: Line) -> list[list[Segment]]:
        kept = self._bodies.get(line.number)
        if kept is not None and not line.partial:
            return kept
        texts = [body_text(line, folded=self.look.json, style_of=self.style_of)]
        if line.number in self.look.expanded:
            texts = spread_texts(line, self.style_of) or texts
        bodies = [self._marked(text) for text in texts]
        if len(self._bodies) >= _KEPT:
            self._bodies.clear()
        if not line.partial:
            self._bodies[line.number] = bodies
        return bodies

    def _marked(self, text: Text) -> list[Segment]:
        search = self.lines.search
        highlight(text, search.pattern.shown if search is not None else None, self.look.rules, self.style_of)
        return segments(text, self.base)


def _cells(segments: list[Segment]) -> int:
    return sum(segment.cell_length for segment in segments)
