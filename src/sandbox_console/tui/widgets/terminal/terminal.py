"""A terminal widget that shows the output of a guest's shell, and sends it keys, pastes and mouse events."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, perf_counter

from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from sandbox_console.model.pastes import has_line_breaks
from sandbox_console.tui.text.formatting import LEAVE_KEY
from sandbox_console.tui.widgets.terminal.copy_keys import CopyKeys, styled
from sandbox_console.tui.widgets.terminal.emulator import Emulator, MouseAction
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

FRAME_S = 1 / 30
_WHEEL_LINES = 3
_SCROLL_KEYS = {"shift+pageup": -1, "shift+pagedown": 1}

Send = Callable[[bytes], None]
SetSize = Callable[[int, int], None]


class TerminalView(CopyKeys, can_focus=True):
    """A guest's terminal.

    ::

        view = TerminalView()
        view.attach(on_input=queue.put_nowait, on_size=resize)  # bytes to the guest; (cols, rows), also called now
        view.feed(data)                                         # at most CHUNK bytes of its output at a time
        view.detach()

    Open the shell with ``view.emulator.cols`` and ``.rows``, best after the first layout (``call_after_refresh``).

    While it has the focus, every key goes to the guest, including those of priority bindings (Ctrl+P, Ctrl+Q, Ctrl+C,
    Tab, Escape), except Ctrl+], which posts `Left`. Shift+PageUp and Shift+PageDown, and the wheel if the guest has
    not requested the mouse, scroll through the scrollback. The mouse selects and copies text, with Shift held also
    where the guest has requested it. `begin_copy` does so by keys.

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

    def __init__(
        self,
        make_emulator: Callable[[], Emulator] = GhosttyEmulator,
        *,
        owned: bool = True,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """With ``owned`` False the emulator outlives the widget, which can be replaced by another."""
        super().__init__(id=id, classes=classes)
        self.emulator = make_emulator()
        self._owned = owned
        self.on_typed: Callable[[events.Key | str], None] | None = None
        """Called with each key and each paste that was sent to the guest."""
        self._on_input: Send | None = None
        self._on_size: SetSize | None = None
        self._painted_at = 0.0
        self._cost_s = 0.0
        self._waiting = False
        self._cursor_row = 0
        self._look: Style | None = None
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
        self.draw_soon()

    def redraw(self) -> None:
        self._paint()
        self.refresh()

    def screen_text(self) -> str:
        """Return the visible text."""
        self._paint()
        return self.shown.text()

    def _send(self, data: bytes) -> None:
        if data and self._on_input:
            self._on_input(data)

    def draw_soon(self) -> None:
        """Draw what the emulator has interpreted, at most 30 times a second."""
        if not self._waiting and self.is_attached:
            self._waiting = True
            # A crowded screen of 200 x 50 takes 15 ms to read, so limit painting to half of the time.
            pause = max(FRAME_S, 2 * self._cost_s) - (perf_counter() - self._painted_at)
            self.set_timer(max(pause, 0.001), self._paint)

    def _paint(self) -> None:
        self._waiting = False
        if self.copying is not None:  # the frozen screen is shown
            return
        if not self.is_attached:  # it was removed, and its emulator may be closed
            return
        before = perf_counter()
        shown = self.emulator.refresh()
        left = self._cursor_row
        self._cursor_row = cursor.y if (cursor := self.emulator.cursor) else 0
        self.refresh(*(Region(0, y, self.size.width, 1) for y in {*shown, left, self._cursor_row}))
        self._painted_at = perf_counter()
        self._cost_s = self._painted_at - before

    def render_line(self, y: int) -> Strip:
        look = self._look or self.rich_style
        if y >= self.emulator.rows:
            return Strip.blank(self.size.width, look)
        shown = self.shown
        strip = Strip(shown.line(y), shown.cols)
        strip = self._with_cursor(strip, y) if self.copying is None else self.with_copy_mode(strip, y)
        return strip.apply_style(look).adjust_cell_length(self.size.width, look)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw with the widget's style worked out once: 0.2 ms, which each line would take twice."""
        self._look = self.rich_style
        try:
            return super().render_lines(crop)
        finally:
            self._look = None

    def _with_cursor(self, strip: Strip, y: int) -> Strip:
        cursor = self.emulator.cursor if y == self._cursor_row else None
        if cursor is None or cursor.y != y:
            return strip
        style = Style(reverse=True) if self.has_focus else Style(underline=True)
        return styled(strip, cursor.x, cursor.x + cursor.width, style)

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002 - Textual's signature
        """Keep every key from the surrounding bindings, including priority ones, except the key that leaves."""
        return key != LEAVE_KEY

    def on_key(self, event: events.Key) -> None:
        self.typed_at = monotonic()
        if self.copying is not None and event.key not in (LEAVE_KEY, *_SCROLL_KEYS):
            return  # it is looked up in the keys of copy mode
        event.stop()
        event.prevent_default()
        if event.key == LEAVE_KEY:
            self.post_message(self.Left(self))
        elif event.key in _SCROLL_KEYS and self.copying is not None:
            self.action_copy_page(_SCROLL_KEYS[event.key])
        elif event.key in _SCROLL_KEYS and not self.emulator.alternate_screen:
            self._scroll(_SCROLL_KEYS[event.key] * max(1, self.emulator.rows - 1))
        elif data := self.emulator.key(event.key, event.character):
            self._to_end()
            self._send(data)
            self._tell_typed(event)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.end_copy()
        if has_line_breaks(event.text):
            self.post_message(self.LinesPasted(self, event.text))
        else:
            self.paste(event.text)

    def paste(self, text: str) -> None:
        """Send a paste to the guest."""
        self._to_end()
        self._send(self.emulator.paste(text))
        self._tell_typed(text)

    def _tell_typed(self, typed: events.Key | str) -> None:
        if self.on_typed is not None:
            self.on_typed(typed)

    def on_resize(self) -> None:
        cols, rows = self.content_size
        if cols < 1 or rows < 1 or (cols, rows) == (self.emulator.cols, self.emulator.rows):
            return
        self.end_copy()
        self.emulator.resize(cols, rows)
        self._paint()
        if self._on_size:
            self._on_size(cols, rows)

    def on_unmount(self) -> None:
        self.detach()
        self.end_copy()
        if self._owned:
            self.emulator.close()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def _to_end(self) -> None:
        if self.emulator.scrolled:
            self.emulator.scroll_end()
            self.draw_soon()

    def _scroll(self, lines: int) -> None:
        self.emulator.scroll(lines)
        self.draw_soon()

    def _mouse(self, event: events.MouseEvent, action: MouseAction, button: int) -> bool:
        """Send a mouse event to the guest if it has requested them. Shift keeps it here, as in xterm."""
        if event.shift or self.copying is not None or not self.emulator.mouse_wanted:
            return False
        mods = frozenset(name for name, pressed in (("ctrl", event.ctrl), ("alt", event.meta)) if pressed)
        self._send(self.emulator.mouse(action, button, event.x, event.y, mods))
        event.stop()
        event.prevent_default()
        return True

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if not self._mouse(event, "press", event.button) and event.button == 1:
            self.press(event.x, event.y)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if not self._mouse(event, "release", event.button):
            self.release()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if not self._mouse(event, "motion", event.button) and event.button == 1:
            self.drag(event.x, event.y)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, 4, "up", -_WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 5, "down", _WHEEL_LINES)

    def _wheel(self, event: events.MouseEvent, button: int, key: str, lines: int) -> None:
        if self._mouse(event, "press", button):
            return
        event.stop()
        event.prevent_default()
        if self.copying is not None:
            self.action_copy_move(0, lines)
        elif self.emulator.alternate_screen:  # xterm's alternate scroll: less and vi scroll
            self._send(self.emulator.key(key, None) * _WHEEL_LINES)
        else:
            self._scroll(lines)
