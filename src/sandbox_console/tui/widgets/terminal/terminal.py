"""A terminal widget that shows the output of a guest's shell, and sends it keys, pastes and mouse events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic, perf_counter
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from sandbox_console.model.pastes import has_line_breaks
from sandbox_console.tui.text.formatting import LEAVE_KEY
from sandbox_console.tui.widgets.terminal.emulator import Emulator, MouseAction
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

FRAME_S = 1 / 30
CHUNK = 64 * 1024
"""The bytes that are interpreted at a time: about 1 ms at 57 MB/s."""
_WHEEL_LINES = 3
_SCROLL_KEYS = {"shift+pageup": -1, "shift+pagedown": 1}

Send = Callable[[bytes], None]
SetSize = Callable[[int, int], None]


class TerminalView(Widget, can_focus=True):
    """A guest's terminal.

    ::

        view = TerminalView()
        view.attach(on_input=queue.put_nowait, on_size=resize)  # bytes to the guest; (cols, rows), also called now
        await view.pump(session.read)                           # or view.feed(data) for each chunk
        view.detach()

    Open the shell with ``view.emulator.cols`` and ``.rows``, best after the first layout (``call_after_refresh``).

    While it has the focus, every key goes to the guest, including those of priority bindings (Ctrl+P, Ctrl+Q, Ctrl+C,
    Tab, Escape), except Ctrl+], which posts `Left`. Shift+PageUp and Shift+PageDown, and the wheel if the guest has
    not requested the mouse, scroll through the scrollback. With Shift held, the mouse selects text as elsewhere in
    Textual.

    Only cells and colours of the guest's output reach the real terminal.
    """

    DEFAULT_CSS = "TerminalView { height: 1fr; background: black; color: #d0d0d0; }"

    class Left(Message):
        """The key that leaves the terminal was pressed."""

        def __init__(self, view: TerminalView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> TerminalView:
            return self.view

    class LinesPasted(Message):
        """Several lines were pasted, which a shell may run. They wait for `TerminalView.paste`."""

        def __init__(self, view: TerminalView, text: str) -> None:
            super().__init__()
            self.view = view
            self.text = text

        @property
        def control(self) -> TerminalView:
            return self.view

    BINDINGS: ClassVar = []

    def __init__(
        self,
        make_emulator: Callable[[], Emulator] = GhosttyEmulator,
        *,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.emulator = make_emulator()
        self._on_input: Send | None = None
        self._on_size: SetSize | None = None
        self._painted_at = 0.0
        self._cost_s = 0.0
        self._waiting = False
        self._cursor_row = 0
        self.typed_at = self.detached_at = 0.0  # time.monotonic() of the last key, and of the guest's end

    def attach(self, on_input: Send, on_size: SetSize) -> None:
        """Connect a guest. Both functions are called from the event loop and must not block.

        ``on_size`` is called immediately: a program that starts with a size other than the emulator's draws wrongly.
        """
        self._on_input, self._on_size = on_input, on_size
        on_size(self.emulator.cols, self.emulator.rows)

    def detach(self) -> None:
        """Disconnect the guest. Its output stays on screen."""
        self.detached_at = monotonic()
        self._on_input = self._on_size = None

    def feed(self, data: bytes) -> None:
        """Show output of the guest. Pass at most `CHUNK` bytes per call to keep the loop responsive."""
        if replies := self.emulator.feed(data):
            self._send(replies)
        self._repaint()

    async def pump(self, read: Callable[[], Awaitable[bytes]]) -> None:
        """Feed what ``read`` returns until it returns nothing."""
        while data := await read():
            for at in range(0, len(data), CHUNK):
                self.feed(data[at : at + CHUNK])
                await asyncio.sleep(0)

    def screen_text(self) -> str:
        """Return the visible text."""
        self._paint()
        return self.emulator.text()

    def _send(self, data: bytes) -> None:
        if data and self._on_input:
            self._on_input(data)

    def _repaint(self) -> None:
        if not self._waiting and self.is_attached:
            self._waiting = True
            # A crowded screen of 200 x 50 takes 15 ms to read, so limit painting to half of the time.
            pause = max(FRAME_S, 2 * self._cost_s) - (perf_counter() - self._painted_at)
            self.set_timer(max(pause, 0.001), self._paint)

    def _paint(self) -> None:
        self._waiting = False
        before = perf_counter()
        shown = self.emulator.refresh()
        left = self._cursor_row
        self._cursor_row = cursor.y if (cursor := self.emulator.cursor) else 0
        self.refresh(*(Region(0, y, self.size.width, 1) for y in {*shown, left, self._cursor_row}))
        self._painted_at = perf_counter()
        self._cost_s = self._painted_at - before

    def render_line(self, y: int) -> Strip:
        if y >= self.emulator.rows:
            return Strip.blank(self.size.width, self.rich_style)
        strip = Strip(self.emulator.line(y), self.emulator.cols)
        strip = self._with_selection(self._with_cursor(strip, y), y).apply_style(self.rich_style)
        return strip.adjust_cell_length(self.size.width, self.rich_style).apply_offsets(0, y)

    def _with_cursor(self, strip: Strip, y: int) -> Strip:
        cursor = self.emulator.cursor
        if cursor is None or cursor.y != y:
            return strip
        style = Style(reverse=True) if self.has_focus else Style(underline=True)
        return _styled(strip, cursor.x, cursor.x + cursor.width, style)

    def _with_selection(self, strip: Strip, y: int) -> Strip:
        span = selection.get_span(y) if (selection := self.text_selection) else None
        if span is None:
            return strip
        text = strip.text
        start, end = span[0], len(text) if span[1] == -1 else span[1]
        style = self.screen.get_component_rich_style("screen--selection")
        return _styled(strip, strip.index_to_cell_position(start), strip.index_to_cell_position(end), style)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.emulator.text()), "\n"

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002 - Textual's signature
        self.refresh()

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002 - Textual's signature
        """Keep every key from the surrounding bindings, including priority ones, except the key that leaves."""
        return key != LEAVE_KEY

    def on_key(self, event: events.Key) -> None:
        self.typed_at = monotonic()
        event.stop()
        event.prevent_default()
        if event.key == LEAVE_KEY:
            self.post_message(self.Left(self))
        elif event.key in _SCROLL_KEYS and not self.emulator.alternate_screen:
            self._scroll(_SCROLL_KEYS[event.key] * max(1, self.emulator.rows - 1))
        elif data := self.emulator.key(event.key, event.character):
            self._to_end()
            self._send(data)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        if has_line_breaks(event.text):
            self.post_message(self.LinesPasted(self, event.text))
        else:
            self.paste(event.text)

    def paste(self, text: str) -> None:
        """Send a paste to the guest."""
        self._to_end()
        self._send(self.emulator.paste(text))

    def on_resize(self) -> None:
        cols, rows = self.content_size
        if cols < 1 or rows < 1 or (cols, rows) == (self.emulator.cols, self.emulator.rows):
            return
        self.emulator.resize(cols, rows)
        self._paint()
        if self._on_size:
            self._on_size(cols, rows)

    def on_unmount(self) -> None:
        self.detach()
        self.emulator.close()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def _to_end(self) -> None:
        if self.emulator.scrolled:
            self.emulator.scroll_end()
            self._repaint()

    def _scroll(self, lines: int) -> None:
        self.emulator.scroll(lines)
        self._repaint()

    def _mouse(self, event: events.MouseEvent, action: MouseAction, button: int) -> bool:
        """Send a mouse event to the guest if it has requested them. Shift keeps it here, as in xterm."""
        if event.shift or not self.emulator.mouse_wanted:
            return False
        mods = frozenset(name for name, held in (("ctrl", event.ctrl), ("alt", event.meta)) if held)
        self._send(self.emulator.mouse(action, button, event.x, event.y, mods))
        event.stop()
        event.prevent_default()
        return True

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._mouse(event, "press", event.button)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._mouse(event, "release", event.button)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._mouse(event, "motion", event.button)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, 4, "up", -_WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 5, "down", _WHEEL_LINES)

    def _wheel(self, event: events.MouseEvent, button: int, key: str, lines: int) -> None:
        if self._mouse(event, "press", button):
            return
        event.stop()
        event.prevent_default()
        if self.emulator.alternate_screen:  # xterm's alternate scroll: less and vi scroll
            self._send(self.emulator.key(key, None) * _WHEEL_LINES)
        else:
            self._scroll(lines)


def _styled(strip: Strip, start: int, end: int, style: Style) -> Strip:
    """Return the strip with a style over the cells from ``start`` to ``end``."""
    if start >= end:
        return strip
    before, inside, after = (strip.crop(0, start), strip.crop(start, end), strip.crop(end))
    return Strip.join([before, Strip(Segment.apply_style(inside, post_style=style), inside.cell_length), after])
