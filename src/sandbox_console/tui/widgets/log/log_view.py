"""The log view: follows new lines, stays in place while you read, searches and filters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from time import time_ns
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.logs.store import Line
from sandbox_console.model.text import strip_colours
from sandbox_console.tui.keys.keymap import hint, key_of, no_search
from sandbox_console.tui.keys.page_keys import AGO, PAGE_KEYS
from sandbox_console.tui.text.formatting import many
from sandbox_console.tui.widgets.log.log_canvas import LogCanvas
from sandbox_console.tui.widgets.log.log_line import is_json
from sandbox_console.tui.widgets.log.log_save import save_new

_SIDE_STEP = 8
_WHEEL = 3


class LogView(LogCanvas, can_focus=True):
    """The log of a sandbox, or of several.

    ::

        view = LogView()
        view.append(items)             # Sequence[LogItem], as yielded by the console's logs(); batches are cheap
        view.set_filter("error|warn")  # only lines that match, !... those that do not; None shows all
        view.search("timeout")         # then n and N; both raise UsageError
        await view.save(Path("x.log")) # the raw bytes, to a file that must not exist

    Scrolling up pauses, and ``G`` follows again. The last row shows the mode and how many of all lines are shown.
    stderr lines begin with ``E``, lost output with ``~``, and the user's marks with ``=``. `LogPane` opens an input
    line for `SearchRequested` and `FilterRequested`. The surrounding pane handles `SaveRequested`,
    `OlderLinesRequested` and `RemovedLogsRequested`.
    """

    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["logs"]
    _ago = 0

    class _Requested(Message):
        def __init__(self, view: LogView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> LogView:
            return self.view

    class SearchRequested(_Requested):
        """The search key was pressed."""

    class FilterRequested(_Requested):
        """The filter key was pressed."""

    class SaveRequested(_Requested):
        """The save key was pressed."""

    class RemovedLogsRequested(_Requested):
        """The key for logs of removed sandboxes was pressed."""

    class OlderLinesRequested(_Requested):
        """The user reached the oldest line, or requested a time before it (``since_ns``)."""

        def __init__(self, view: LogView, since_ns: int | None = None) -> None:
            super().__init__(view)
            self.since_ns = since_ns

    class LogStartRequested(_Requested):
        """The user goes to the beginning of the log, which is not in memory."""

    class SearchChanged(_Requested):
        """A search or a filter started or ended."""

    def search(self, pattern: str | None) -> None:
        super().search(pattern)
        self._post_search_changed()

    def set_filter(self, pattern: str | None) -> None:
        super().set_filter(pattern)
        self._post_search_changed()

    def _post_search_changed(self) -> None:
        """Post the message with itself as sender: one that seems to be from the parent would not bubble further."""
        self.post_message(self.SearchChanged(self).set_sender(self))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Let the log handle Escape only while there is a search or a filter."""
        return action != "clear_pattern" or any(self.patterns)

    def action_clear_pattern(self) -> None:
        """End the search, or the filter if there is no search."""
        if self.patterns.search:
            self.search(None)
        else:
            self.set_filter(None)

    async def save(self, path: Path, guest_folders: GuestFolders = NOBODYS) -> int:
        """Write the lines, or those the filter shows, as raw bytes to a new file (0600). Returns the bytes written.

        ``guest_folders`` is what guests can change. Raises OSError (including FileExistsError) and Conflict. Lost
        output is written as its ``[... lost: ...]`` line.
        """
        return await save_new(path, self.lines.raw(), guest_folders)

    # --- moving

    def action_line(self, step: int) -> None:
        """Scroll by lines."""
        self._scroll(step)

    def key_shift_pageup(self) -> None:
        """Scroll as terminals do."""
        self.action_page(-1)

    def key_shift_pagedown(self) -> None:
        """Scroll as terminals do."""
        self.action_page(1)

    def action_page(self, step: int) -> None:
        """Scroll by pages."""
        self._scroll(step * max(1, self._height - 1))

    def _scroll(self, rows: int) -> None:
        at_top = rows < 0 and self._at_top
        self._scroll_rows(rows)
        if at_top:
            self.post_message(self.OlderLinesRequested(self))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if self.look.tall:
            self._wheel(event, -_WHEEL)
        elif self._at_top:
            self.post_message(self.OlderLinesRequested(self))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        if self.look.tall:
            self._wheel(event, _WHEEL)

    def _wheel(self, event: events.MouseEvent, rows: int) -> None:
        """Scroll by strips. Textual would scroll by lines, and skip the rest of a tall one."""
        event.prevent_default()
        event.stop()
        self._scroll(rows)

    def action_side(self, step: int) -> None:
        """Scroll sideways."""
        self.look.side = max(0, self.look.side + step * _SIDE_STEP)
        self._redraw()

    def action_head(self) -> None:
        """Go to the beginning of the log, which may require reading older lines."""
        self._pause()
        self._move(0)
        if not self.store.begins:
            self.post_message(self.LogStartRequested(self))

    def action_tail(self) -> None:
        """Follow new lines."""
        self._resume()

    def action_ago(self, minutes: int) -> None:
        """Go to the first line of the last ``minutes``."""
        self.look_at(time_ns() - minutes * 60 * 10**9)

    def look_at(self, at_ns: int) -> None:
        """Stop following and go to the first line at or after a time, which may require reading older lines."""
        self._pause()
        oldest = self.store.oldest_ns
        if oldest is not None and oldest > at_ns:
            self.post_message(self.OlderLinesRequested(self, at_ns))
        self.go_to_time(at_ns)

    def action_ago_more(self) -> None:
        """Go to the first line of the last minute, and further back each time."""
        at = AGO.index(self._ago) + 1 if self._ago in AGO else 0
        self._ago = AGO[at % len(AGO)]
        self.action_ago(self._ago)
        self.notify(f"The last {self._ago} min.", timeout=2)

    def go_to_time(self, at_ns: int) -> None:
        """Scroll the first line at or after a time to the top."""
        self._anchor = self.store.since(at_ns)
        self._move(self.lines.row_of(self._anchor))
        self._redraw()

    def action_autoscroll(self) -> None:
        """Switch between following and pausing."""
        if self.follow:
            self._pause()
        else:
            self._resume()

    def action_next(self, step: int) -> None:
        """Go to the next match below or above, wrapping around at the end."""
        found = self.lines.search
        if found:
            at = self._match if self._match is not None else self._bottom_line
            number = found.after(at) if step > 0 else found.before(at)
            self._go_to_match(found.number_at(0 if step > 0 else -1) if number is None else number)
        else:
            self.notify(no_search(self, "logs-search"))

    # --- appearance

    def action_timestamps(self) -> None:
        """Show or hide the time of each line."""
        self.look.timestamps = not self.look.timestamps
        self._redraw()

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.look.wrap = not self.look.wrap
        self.look.side = 0
        self._schedule(0)

    def action_json(self) -> None:
        """Show JSON lines shortened, or unchanged."""
        self.look.json = not self.look.json
        self._look_anew()

    # --- one line

    def action_select(self, step: int) -> None:
        """Select the line above or below, or the first time the last visible one."""
        drawn = self.drawn()
        if not drawn:
            return
        chosen = self.look.selected
        if chosen is None or not drawn[0][0] <= chosen <= drawn[-1][0]:
            self.look.selected = drawn[-1][0]
        else:
            row = self.lines.row_of(chosen) + step
            self.look.selected = self.lines.line_at(min(max(row, 0), self.shown - 1)).number
        self._go_to(self.look.selected)

    def on_click(self, event: events.Click) -> None:
        """Select a line. A second click expands or folds JSON."""
        drawn = self.drawn()
        if event.y < len(drawn):
            again = self.look.selected == drawn[event.y][0]
            self.look.selected = drawn[event.y][0]
            self._pause()
            if again:
                self.action_expand()

    @property
    def _chosen(self) -> Line | None:
        """The selected line, or the last visible one if none is selected."""
        drawn = self.drawn()
        numbers = [number for number, _ in drawn]
        number = self.look.selected if self.look.selected in numbers else numbers[-1] if numbers else None
        return None if number is None else self.lines.line_at(self.lines.row_of(number))

    def action_expand(self) -> None:
        """Expand the selected JSON line, or fold it again."""
        line = self._chosen
        if line is None:
            return
        if line.number not in self.look.expanded and not is_json(line):
            keys = [key_of(self, f"logs-select-{where}") for where in ("up", "down")]
            more = f" {' and '.join(keys)} choose another." if all(keys) else ""
            self.notify(f"This line is not JSON.{more}", severity="warning")
            return
        self._pause()
        self.look.selected = line.number
        self.look.expanded ^= {line.number}
        self._look_anew()
        self._bring_whole(line.number)

    def action_copy_line(self) -> None:
        """Copy the selected line as the sandbox wrote it, without colours and control characters."""
        if (line := self._chosen) is not None:
            self.app.copy_to_clipboard(_text(line))
            self.notify("Copied a line.")

    def action_copy_page(self) -> None:
        """Copy the visible lines."""
        lines = list(self._lines_in_view())
        self.app.copy_to_clipboard("\n".join(map(_text, lines)))
        self.notify(f"Copied {many(len(lines), 'line')}.")

    def _lines_in_view(self) -> Iterator[Line]:
        for number in dict.fromkeys(number for number, _ in self.drawn()):
            yield self.lines.line_at(self.lines.row_of(number))

    def action_mark(self) -> None:
        """Draw a line below the output so far."""
        self.store.mark(time_ns(), f"──── marked {datetime.now().astimezone():%H:%M:%S} ────────────────")
        self._schedule(0)

    def action_next_mark(self) -> None:
        """Go to the mark above, wrapping around from the top to the last one."""
        if not self.store.marks:
            makes = hint(self, "logs-mark", "sets one")
            self.notify("; ".join(filter(None, ("There is no mark", makes))) + ".", severity="warning")
            return
        top = self.lines.line_at(self._top).number if self.shown else 0
        above = [number for number in self.store.marks if number < top]
        self._pause()
        self._anchor = above[-1] if above else self.store.marks[-1]
        self.look.selected = self._anchor
        self._move(self.lines.row_of(self._anchor))
        self._redraw()

    # --- requests

    def action_ask_search(self) -> None:
        """Request a pattern to search for."""
        self.post_message(self.SearchRequested(self))

    def action_ask_filter(self) -> None:
        """Request a pattern to filter by."""
        self.post_message(self.FilterRequested(self))

    def action_ask_save(self) -> None:
        """Request a file to save to."""
        self.post_message(self.SaveRequested(self))

    def action_ask_gone(self) -> None:
        """Request the logs of removed sandboxes."""
        self.post_message(self.RemovedLogsRequested(self))


def _text(line: Line) -> str:
    return strip_colours(line.data.rstrip(b"\r\n").decode("utf-8", "replace"))
