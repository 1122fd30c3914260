"""The canvas of a log: its lines, the scroll position, and drawing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from time import time
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from sandbox_console.logs.store import DEFAULT_CAP, LineStore
from sandbox_console.model.log import LogItem
from sandbox_console.model.text import clean
from sandbox_console.tui.widgets.line_scroll import LineScroll
from sandbox_console.tui.widgets.log.log_line import Rule
from sandbox_console.tui.widgets.log.log_lines import Patterns, ShownLines
from sandbox_console.tui.widgets.log.log_page import LOG_CSS, LOG_PARTS, DisplayOptions, LogPage
from sandbox_console.tui.widgets.log.log_status import status_segments

TICK_S = 0.05
SCAN_S = 0.01
STATUS_ROWS = 1
_NO_PATTERNS = Patterns()


class LogCanvas(LineScroll):
    """Draws the lines of a store. Scrolling up pauses. `LogView` adds the keys."""

    DEFAULT_CSS = LOG_CSS
    COMPONENT_CLASSES: ClassVar[set[str]] = LOG_PARTS

    def __init__(
        self,
        *,
        cap_bytes: int = DEFAULT_CAP,
        rules: Sequence[Rule] = (),
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.lines = ShownLines(LineStore(cap_bytes))
        self.look = DisplayOptions(rules=rules)
        self.follow = True
        self._stream, self._open = "FOLLOWING", True
        self.older = ""
        self._page = LogPage(self.lines, self.look)
        self._match: int | None = None
        self._seek = False
        self._anchor: int | None = None
        self._skip = 0
        self._moving = False
        self._ticking = False
        self._drawn: list[tuple[int, Strip]] | None = None

    # --- contents

    @property
    def store(self) -> LineStore:
        """The store of the lines."""
        return self.lines.store

    @property
    def total(self) -> int:
        """The number of lines, whether filtered or not."""
        return self.lines.total

    @property
    def shown(self) -> int:
        """The number of lines to scroll through."""
        return self.lines.shown

    def append(self, items: Sequence[LogItem], source: int = 0) -> None:
        """Add output. It is drawn within 50 ms."""
        self.store.append(items, source)
        self.lines.forget()
        self._schedule(TICK_S)

    def put_older(self, older: LineStore) -> int:
        """Insert older output before the oldest line. Visible lines stay visible. Returns the number of lines added."""
        if self._anchor is None and self.shown:
            self._anchor = self.lines.line_at(self._top).number
        count = self.store.prepend(older)
        self._schedule(0)
        return count

    @property
    def patterns(self) -> Patterns:
        """The active search and filter."""
        return self.lines.patterns

    def show_store(self, store: LineStore, names: Sequence[str] = (), patterns: Patterns = _NO_PATTERNS) -> None:
        """Show other lines, with their own search and filter. ``names`` are the names of several sources."""
        self.lines.use(store, patterns)
        self.look.names = names
        self.look.expanded.clear()
        self.look.selected = self._match = self._anchor = None
        self.older = ""
        store.holding = not self.follow
        self._look_anew()

    def note_stream(self, words: str, *, open: bool) -> None:
        """Set the state of the stream, shown in the last row. A pause is shown only while the stream is ``open``."""
        if (words, open) != (self._stream, self._open):
            self._stream, self._open = words, open
            self.refresh_line(self.scroll_offset.y + self.size.height - 1)  # only the last row says so

    def clear(self) -> None:
        """Remove all lines. The filter and the search stay."""
        self.store.clear()
        self.show_store(self.store, self.look.names, self.patterns)

    def set_filter(self, pattern: str | None) -> None:
        """Show only lines that match a regular expression. Capitals make it case-sensitive. Raises UsageError."""
        self.lines.set_filter(pattern)
        self._schedule(0)

    def search(self, pattern: str | None) -> None:
        """Highlight matches, and go to the nearest visible one or one above. Raises UsageError."""
        self.lines.set_search(pattern)
        self._match = None
        self._seek = True
        self._look_anew()

    def seek_older(self) -> None:
        """Go to the nearest match once older lines have been searched, if there was none so far."""
        self._seek |= self._match is None
        self._schedule(0)

    def go_to_first(self) -> None:
        """Scroll the oldest line to the top."""
        self._anchor = None
        self._move(0)
        self._redraw()

    # --- timer

    def _look_anew(self) -> None:
        """Redraw with a changed look."""
        self._page.forget()
        self._schedule(0)

    def _schedule(self, delay_s: float) -> None:
        if not self._ticking and self.is_attached:
            self._ticking = True
            self.set_timer(max(delay_s, 0.001), self._tick)

    def _tick(self) -> None:
        self._ticking = False
        done = self.lines.scan(SCAN_S)
        self._measure()
        if self.follow:
            self._move(self.shown - (1 if self.look.tall else self._height))
        elif self._anchor is not None:
            self._move(self.lines.row_of(self._anchor), self._skip)
        self._redraw()
        if not done:
            self._schedule(0)
        elif self.lines.search is not None and self._seek:
            self._seek = False
            above = self.lines.search.before(self._bottom_line + 1)
            self._go_to_match(self.lines.search.after(self.store.first - 1) if above is None else above)

    def _measure(self) -> None:
        extra = self._height - 1 if self.look.tall else 0
        self.virtual_size = Size(self.scrollable_size.width, self.shown + STATUS_ROWS + extra)

    def _redraw(self) -> None:
        self._drawn = None
        self.refresh()

    # --- moving

    def _move(self, row: int, skip: int = 0) -> None:
        """Go to a row, with ``skip`` strips of its line above the view. This does not count as the user's scrolling."""
        if self.look.tall:
            self._measure()
        self._moving = True
        self.scroll_to(y=max(0, row), animate=False, force=True, immediate=True)
        self._moving = False
        if skip != self._skip:
            self._skip = skip if self.look.tall else 0
            self._drawn = None

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._drawn = None
        # Textual moves a view that grew up to the new end. A user who scrolls up is above the end.
        if not self._moving:
            self._skip = 0
            if round(new_value) < min(round(old_value), self.max_scroll_y):
                self._hold()
        if self.shown:
            self._anchor = self.lines.line_at(self._top).number

    def _pause(self) -> None:
        """Stop following, and keep the visible lines in place."""
        if self.follow and self.look.tall and self.shown:
            self._move(*self._ready.end(self._height))
        self._hold()

    def _hold(self) -> None:
        self.follow = False
        self.store.holding = True
        if self.shown:
            self._anchor = self.lines.line_at(self._top).number
        self._redraw()

    def _resume(self) -> None:
        self.follow = True
        self.store.holding = False
        self._schedule(0)

    def _scroll_rows(self, rows: int) -> None:
        if self.follow and rows < 0:
            self._pause()
        if not self.look.tall:
            self._move(min(self._top + rows, max(0, self.shown - self._height)))
        elif self.shown and not self.follow:
            page = self._ready
            self._move(*min(page.moved((self._top, self._skip), rows), page.end(self._height)))
        self._redraw()

    @property
    def _at_top(self) -> bool:
        """Whether the beginning of the oldest line is visible."""
        return not self.follow and self._top == 0 and self._skip == 0

    @property
    def _bottom_line(self) -> int:
        if self.look.tall:
            return drawn[-1][0] if (drawn := self.drawn()) else self.store.first - 1
        row = min(self._top + self._height, self.shown) - 1
        return self.lines.line_at(row).number if row >= 0 else self.store.first - 1

    def _go_to_match(self, number: int | None) -> None:
        self._match = number
        if number is not None:
            self.look.selected = number
            self._go_to(number, self._ready.match_in(self.lines.row_of(number)) if self.look.tall else 0)

    def _go_to(self, number: int, strip: int = 0) -> None:
        """Scroll a line into view, or the relevant strip of it."""
        self._pause()
        row = self.lines.row_of(number)
        if not self.look.tall:
            if not self._top <= row < self._top + self._height:
                self._move(max(0, row - self._height // 2))
        elif self.shown and not self._in_view(row, number, strip):
            page = self._ready
            self._move(*min(page.moved((row, strip), -(self._height // 2)), page.end(self._height)))
        self._redraw()

    def _in_view(self, row: int, number: int, strip: int) -> bool:
        first = self._skip if row == self._top else 0
        return first <= strip < first + [shown for shown, _ in self.drawn()].count(number)

    def _bring_whole(self, number: int) -> None:
        """Scroll all strips of a line into view, or as many as fit."""
        page, row = self._ready, self.lines.row_of(number)
        self._drawn = None
        if not self.look.tall or [shown for shown, _ in self.drawn()].count(number) == page.count(row):
            return
        room = self._height - page.count(row)
        self._move(*(page.moved((row, 0), -room) if room > 0 else (row, 0)))

    # --- drawing

    @property
    def _height(self) -> int:
        return max(1, self.size.height - STATUS_ROWS)

    @property
    def _top(self) -> int:
        return min(self.scroll_offset.y, max(0, self.shown - 1))

    def on_resize(self, _: events.Resize) -> None:
        self._schedule(0)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._page.forget()
        self._drawn = None

    def render_line(self, y: int) -> Strip:
        if y == self.size.height - 1:
            return self._status()
        drawn = self.drawn()
        if y == 0 and not drawn and (words := self._nothing()):
            return Strip([Segment(words, self._part("gap"))]).adjust_cell_length(
                self.scrollable_size.width, self.rich_style
            )
        return drawn[y][1] if y < len(drawn) else Strip.blank(self.scrollable_size.width, self.rich_style)

    def _nothing(self) -> str:
        """Return why no line is shown, if a filter matches none."""
        wanted = self.lines.filter
        if wanted is None or not self.total:
            return ""
        return f"No line of {self.total:,} passes the filter {clean(wanted.pattern.text, cap=60)}"

    def drawn(self) -> list[tuple[int, Strip]]:
        """Return the visible rows, each with the number of its line."""
        if self._drawn is None:
            page, at_end = self._ready, self.follow and self.look.tall
            self._drawn = page.up(self._height) if at_end else list(page.down(self._top, self._height, self._skip))
        return self._drawn

    @property
    def _ready(self) -> LogPage:
        """The page with the current size and colours."""
        page = self._page
        page.width, page.base, page.style_of = self.scrollable_size.width, self.rich_style, self._part
        oldest = self.store.oldest_ns if self.look.timestamps else None
        page.dated = oldest is not None and _day(oldest / 1e9) != _day(time())
        return page

    def _part(self, name: str) -> Style:
        return self.get_component_rich_style(f"log--{name}")

    def _status(self) -> Strip:
        last = self.shown if self.follow or not self.shown else self.lines.row_of(self._bottom_line) + 1
        base = self.get_component_rich_style("log--status")
        found = status_segments(
            self.lines, stream=self._stream, is_open=self._open, follow=self.follow, last=last, match=self._match,
            older=self.older, width=self.scrollable_size.width,
            style_of=lambda name: base if name == "status" else self._part(name),
        )  # fmt: skip
        return Strip(found).adjust_cell_length(self.scrollable_size.width, base)


def _day(at: float) -> date:
    return datetime.fromtimestamp(at).astimezone().date()
