"""Logs: follows what comes, holds still when read, searches, filters; parses only the lines in view."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, time_ns
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sandbox_console.logs.index import LineIndex, compile_pattern
from sandbox_console.logs.store import DEFAULT_CAP, GAP, STDERR, Line, LineStore
from sandbox_console.model.log import LogItem
from sandbox_console.tui.widgets.log_line import highlight, line_text, prefix, segments, wrapped

TICK_S = 0.05
SCAN_S = 0.01
STATUS_ROWS = 1
_SIDE_STEP = 8
_STRIP_CACHE = 1024


class LogView(ScrollView, can_focus=True):
    """The log of a sandbox.

    ::

        view = LogView()
        view.append(items)             # Sequence[LogItem], as the console's logs() yields them; batches are cheap
        view.set_filter("error|warn")  # only lines that match; None shows all; raises UsageError
        view.search("timeout")         # then n and N; raises UsageError
        await view.save(Path("x.log")) # the raw bytes, to a file that must not exist

    Scrolling up pauses, ``G`` follows again; the last row says which, and how many lines of how many. stderr lines
    begin with ``E``, lost output with ``~``. Posts `SearchAsked` on ``/`` and `FilterAsked` on ``&``, which `LogPane`
    answers with an input line, and `SaveAsked` on Ctrl+S.
    """

    DEFAULT_CSS = """
    LogView { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    LogView > .log--status { background: $panel; color: $text-muted; }
    LogView > .log--following { color: $text-success; text-style: bold; }
    LogView > .log--paused { color: $text-warning; text-style: bold; }
    LogView > .log--error { color: $text-error; }
    LogView > .log--gap { color: $text-warning; text-style: italic; }
    LogView > .log--prefix { color: $text-muted; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"log--{name}" for name in ("status", "following", "paused", "error", "gap", "prefix")
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "line(-1)", "Up", show=False),
        Binding("down,j", "line(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("left,h", "side(-1)", "Left", show=False),
        Binding("right,l", "side(1)", "Right", show=False),
        Binding("home,g,1", "head", "First line", show=False),
        Binding("end,G,0", "tail", "Follow", show=False),
        Binding("s", "autoscroll", "Follow on/off", show=False),
        Binding("t", "timestamps", "Timestamps", show=False),
        Binding("w", "wrap", "Wrap", show=False),
        Binding("slash", "ask_search", "Search"),
        Binding("ampersand", "ask_filter", "Filter"),
        Binding("n", "next(1)", "Next match", show=False),
        Binding("N", "next(-1)", "Previous match", show=False),
        Binding("ctrl+s", "ask_save", "Save"),
        *(Binding(key, f"ago({minutes})", f"Last {minutes} min", show=False) for key, minutes in
          (("2", 1), ("3", 5), ("4", 15), ("5", 30), ("6", 60))),
    ]  # fmt: skip

    class _Asked(Message):
        def __init__(self, view: LogView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> LogView:
            return self.view

    class SearchAsked(_Asked):
        """The key of the search was pressed."""

    class FilterAsked(_Asked):
        """The key of the filter was pressed."""

    class SaveAsked(_Asked):
        """The key that saves was pressed."""

    def __init__(self, *, cap_bytes: int = DEFAULT_CAP, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.store = LineStore(cap_bytes)
        self.follow = True
        self.timestamps = False
        self.wrap = False
        self._filter: LineIndex | None = None
        self._search: LineIndex | None = None
        self._match: int | None = None
        self._seek = False
        self._side = 0
        self._anchor: int | None = None
        self._moving = False
        self._ticking = False
        self._page_strips: list[Strip] | None = None
        self._line_strips: dict[int, list[Segment]] = {}

    # --- what is shown

    def append(self, items: Sequence[LogItem]) -> None:
        """Add output; it is drawn within 50 ms."""
        self.store.append(items)
        for index in filter(None, self._indexes):
            index.forget()
        self._schedule(TICK_S)

    def clear(self) -> None:
        """Forget all lines; the filter and the search stay."""
        self.store.clear()
        self._line_strips.clear()
        self._filter, self._search = (index and LineIndex(self.store, index.pattern) for index in self._indexes)
        self._anchor = None
        self._schedule(0)

    def set_filter(self, pattern: str | None) -> None:
        """Show only lines that match a regular expression; case counts once it has a capital. Raises UsageError."""
        self._filter = LineIndex(self.store, compile_pattern(pattern)) if pattern else None
        self._schedule(0)

    def search(self, pattern: str | None) -> None:
        """Mark what matches and go to the nearest match in view or above. Raises UsageError."""
        self._search = LineIndex(self.store, compile_pattern(pattern)) if pattern else None
        self._match = None
        self._seek = True
        self._line_strips.clear()
        self._schedule(0)

    async def save(self, path: Path) -> int:
        """Write the lines, or those the filter shows, as raw bytes to a new file (0600); returns the bytes written.

        Raises OSError, FileExistsError among them. Lost output is written as its ``[... lost: ...]`` line.
        """
        if self._filter:
            parts = [self.store.line(number).data for number in self._filter.lines if number >= self.store.first]
        else:
            parts = [bytes(chunk) for _, _, chunk in self.store.chunks()]
            parts += [line.data for line in self.store.partials()]
        return await asyncio.to_thread(_write_new, path, parts)

    # --- rows: places among the lines that are shown

    @property
    def shown(self) -> int:
        """How many lines there are to scroll through."""
        return len(self._filter.lines) if self._filter else len(self.store) + len(self.store.partials())

    @property
    def total(self) -> int:
        """How many lines there are, filtered or not."""
        return len(self.store) + len(self.store.partials())

    def _line_at(self, row: int) -> Line:
        if self._filter:
            return self.store.line(self._filter.lines[row])
        if row < len(self.store):
            return self.store.line(self.store.first + row)
        return self.store.partials()[row - len(self.store)]

    def _row_of(self, number: int) -> int:
        return self._filter.row_of(number) if self._filter else max(0, number - self.store.first)

    @property
    def _page(self) -> int:
        return max(1, self.size.height - STATUS_ROWS)

    @property
    def _top(self) -> int:
        return min(self.scroll_offset.y, max(0, self.shown - 1))

    # --- time passes

    def _schedule(self, delay_s: float) -> None:
        if not self._ticking and self.is_attached:
            self._ticking = True
            self.set_timer(max(delay_s, 0.001), self._tick)

    def _tick(self) -> None:
        self._ticking = False
        done = self._scan()
        self.virtual_size = Size(
            self.scrollable_size.width, self.shown + STATUS_ROWS + (self._page - 1 if self.wrap else 0)
        )
        if self.follow:
            self._move(self.shown - (1 if self.wrap else self._page))
        elif self._anchor is not None:
            self._move(self._row_of(self._anchor))
        self._redraw()
        if not done:
            self._schedule(0)
        elif self._search and self._seek:
            self._seek = False
            above = self._search.before(self._bottom_line + 1)
            self._go_to_match(self._search.after(-1) if above is None else above)

    @property
    def _indexes(self) -> tuple[LineIndex | None, LineIndex | None]:
        return self._filter, self._search

    def _scan(self) -> bool:
        """Look through new lines for at most 10 ms; whether that was all."""
        until = perf_counter() + SCAN_S
        for index in filter(None, self._indexes):
            for _ in index.advance():
                if perf_counter() > until:
                    return False
        return True

    def _redraw(self) -> None:
        self._page_strips = None
        self.refresh()

    # --- moving

    def _move(self, row: int) -> None:
        """Go to a row without taking that for the reader's scrolling."""
        self._moving = True
        self.scroll_to(y=max(0, row), animate=False, force=True, immediate=True)
        self._moving = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._page_strips = None
        if not self._moving and round(new_value) < round(old_value):
            self._pause()
        if self.shown:
            self._anchor = self._line_at(self._top).number

    def _pause(self) -> None:
        self.follow = False
        if self.shown:
            self._anchor = self._line_at(self._top).number
        self._redraw()

    def _resume(self) -> None:
        self.follow = True
        self._schedule(0)

    def _scroll_rows(self, rows: int) -> None:
        if self.follow and rows < 0:
            top = self._wrapped_top() if self.wrap else self._top
            self._pause()
            self._move(top)
        self._move(min(self._top + rows, self.shown - 1 if self.wrap else max(0, self.shown - self._page)))
        self._redraw()

    def action_line(self, step: int) -> None:
        """Scroll by lines."""
        self._scroll_rows(step)

    def action_page(self, step: int) -> None:
        """Scroll by pages."""
        self._scroll_rows(step * max(1, self._page - 1))

    def action_side(self, step: int) -> None:
        """Scroll sideways."""
        self._side = max(0, self._side + step * _SIDE_STEP)
        self._redraw()

    def action_head(self) -> None:
        """Go to the oldest line."""
        self._pause()
        self._move(0)

    def action_tail(self) -> None:
        """Follow."""
        self._resume()

    def action_ago(self, minutes: int) -> None:
        """Go to the first line of the last minutes."""
        self._pause()
        self._move(self._row_of(self.store.since(time_ns() - minutes * 60 * 10**9)))

    def action_autoscroll(self) -> None:
        """Follow or hold still."""
        if self.follow:
            self._pause()
        else:
            self._resume()

    def action_timestamps(self) -> None:
        """Show or hide the time of each line."""
        self.timestamps = not self.timestamps
        self._redraw()

    def action_wrap(self) -> None:
        """Fold long lines, or cut them."""
        self.wrap = not self.wrap
        self._side = 0
        self._schedule(0)

    def action_ask_search(self) -> None:
        """Ask for a pattern to search."""
        self.post_message(self.SearchAsked(self))

    def action_ask_filter(self) -> None:
        """Ask for a pattern to filter by."""
        self.post_message(self.FilterAsked(self))

    def action_ask_save(self) -> None:
        """Ask for a file to save to."""
        self.post_message(self.SaveAsked(self))

    def action_next(self, step: int) -> None:
        """Go to the next match below, or above; round the end to the other side."""
        if self._search and self._search.lines:
            at = self._match if self._match is not None else self._bottom_line
            found = self._search.after(at) if step > 0 else self._search.before(at)
            self._go_to_match(self._search.lines[0 if step > 0 else -1] if found is None else found)

    @property
    def _bottom_line(self) -> int:
        row = min(self._top + self._page, self.shown) - 1
        return self._line_at(row).number if row >= 0 else -1

    def _go_to_match(self, number: int | None) -> None:
        self._match = number
        if number is None:
            return
        row = self._row_of(number)
        self._pause()
        if not self._top <= row < self._top + self._page:
            self._move(max(0, row - self._page // 2))
        self._redraw()

    # --- drawing

    def on_resize(self) -> None:
        self._schedule(0)

    def render_line(self, y: int) -> Strip:
        if y == self.size.height - 1:
            return self._status()
        if self._page_strips is None:
            self._page_strips = list(self._wrapped_page() if self.wrap else self._cut_page())
        if y < len(self._page_strips):
            return self._page_strips[y]
        return Strip.blank(self.scrollable_size.width, self.rich_style)

    def _cut_page(self) -> Iterator[Strip]:
        width, base = self.scrollable_size.width, self.rich_style
        for row in range(self._top, min(self._top + self._page, self.shown)):
            head, body = self._runs(self._line_at(row))
            strip = Strip(head + list(Strip(body).crop(self._side))) if self._side else Strip(head + body)
            yield strip.adjust_cell_length(width, base)

    def _wrapped_rows(self, row: int) -> list[Strip]:
        head, body = self._runs(self._line_at(row))
        indent = len(head[0].text)
        folded = wrapped(body, max(1, self.scrollable_size.width - indent))
        blank = Segment(" " * indent, self.rich_style)
        rows = [Strip([*(head if at == 0 else [blank]), *runs]) for at, runs in enumerate(folded)]
        return [strip.adjust_cell_length(self.scrollable_size.width, self.rich_style) for strip in rows]

    def _wrapped_page(self) -> list[Strip]:
        """A page of folded lines: up from the newest while following, else down from the line on top."""
        strips: list[Strip] = []
        if not self.follow:
            for row in range(self._top, self.shown):
                strips += self._wrapped_rows(row)
                if len(strips) >= self._page:
                    break
            return strips[: self._page]
        for row in range(self.shown - 1, -1, -1):
            strips = self._wrapped_rows(row) + strips
            if len(strips) >= self._page:
                break
        return strips[-self._page :]

    def _wrapped_top(self) -> int:
        """The row whose line is the first in view while following folded lines."""
        height = 0
        for row in range(self.shown - 1, -1, -1):
            height += len(self._wrapped_rows(row))
            if height >= self._page:
                return row
        return 0

    def _runs(self, line: Line) -> tuple[list[Segment], list[Segment]]:
        """What stands before a line, and the line; only lines in view come here, and the last ones are kept."""
        name = {STDERR: "log--error", GAP: "log--gap"}.get(line.kind)
        base = self.rich_style
        mark = Segment(prefix(line, timestamps=self.timestamps), base + self._part("log--prefix"))
        body = self._line_strips.get(line.number)
        if body is None or line.partial:
            text = line_text(line)
            if self._search:
                highlight(text, self._search.pattern)
            body = segments(text, base + self._part(name) if name else base)
            if len(self._line_strips) >= _STRIP_CACHE:
                self._line_strips.clear()
            if not line.partial:
                self._line_strips[line.number] = body
        return [mark], body

    def _part(self, name: str) -> Style:
        return self.get_component_rich_style(name)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._line_strips.clear()
        self._page_strips = None

    def _status(self) -> Strip:
        base = self.get_component_rich_style("log--status")
        word, style = ("FOLLOWING", "log--following") if self.follow else ("PAUSED", "log--paused")
        last = min(self._top + self._page, self.shown) if not self.follow else self.shown
        parts = [f" [{last:,}/{self.shown:,}]"]
        if self._filter:
            parts.append(f"filtered from {self.total:,}")
        if self._search:
            at = self._search.row_of(self._match) + 1 if self._match is not None else 0
            parts.append(f"match {at:,}/{len(self._search.lines):,}")
        if self.store.first:
            parts.append(f"{self.store.first:,} older dropped")
        parts.append("E = stderr")
        strip = Strip([Segment(word, base + self._part(style)), Segment("  ".join(parts), base)])
        return strip.adjust_cell_length(self.scrollable_size.width, base)


def _write_new(path: Path, parts: Sequence[bytes]) -> int:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        return sum(file.write(part) for part in parts)
