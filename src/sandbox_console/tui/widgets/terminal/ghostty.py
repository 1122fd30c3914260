"""The terminal emulator of libghostty-vt (pyghostty 0.1.3), read through its render state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from pyghostty import GhosttyError, Terminal, ffi, lib
from pyghostty._ffi import check, union_fn  # private: pyghostty is pinned; the scroll call takes a union by value
from pyghostty.core import init_sized
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from sandbox_console.tui.base.contrast import Rgb, readable
from sandbox_console.tui.widgets.terminal import ghostty_text
from sandbox_console.tui.widgets.terminal.emulator import (
    Cursor,
    Matches,
    MouseAction,
    Point,
    Span,
    paste_bytes,
    refit,
)
from sandbox_console.tui.widgets.terminal.ghostty_cells import LAYOUT
from sandbox_console.tui.widgets.terminal.ghostty_keys import MODS, translate

SCROLLBACK_LINES = 10_000
"""At least so many are kept: 9.7 MB at 120 columns. A terminal with one screen of text takes less than 0.1 MB."""
_PAGE_LINES = 600
"""The library drops whole pages of lines. One has 215 of 120 columns, and at most this many of narrow ones."""
_SCROLLBACK_BYTES = 32 << 20
"""Its own limit of 10,000 bytes keeps one or two pages. 10,000 lines of 400 columns fit into this."""

_UNFINISHED_BYTES = 64 * 1024
"""How much of an unfinished control sequence is kept, without which a terminal inside one cannot be copied."""

_CANCEL = b"\x18"
_TITLE_MOST = 512
_BELL, _BELLS_COUNTED = b"\x07", 200
"""More bells in one chunk count as one: a call for each of 64 Ki bells would take 40 ms."""
_BRACKETED_PASTE = 2004  # DEC private mode, xterm's ctlseqs
_ALLOW_132_COLUMNS = 40  # the same
_DELETE = b"\x7f"
"""A VT100 ignores it in output; libghostty would show it as a character."""
_MOUSE_ACTIONS = {
    "press": lib.GHOSTTY_MOUSE_ACTION_PRESS,
    "release": lib.GHOSTTY_MOUSE_ACTION_RELEASE,
    "motion": lib.GHOSTTY_MOUSE_ACTION_MOTION,
}
_ATTRIBUTES = (
    ("bold", "bold"),
    ("italic", "italic"),
    ("faint", "dim"),
    ("inverse", "reverse"),
    ("invisible", "conceal"),
    ("strikethrough", "strike"),
    ("overline", "overline"),
    ("underline", "underline"),
)
_BUTTONS = {1: 1, 2: 3, 3: 2, 4: 4, 5: 5}  # libghostty counts right before middle

INK, GROUND = (208, 208, 208), (0, 0, 0)
"""The colours of text that has none of its own, as in the widget's style."""

# cffi cannot pass a union by value, but the call is identical for a struct with an equal layout.
ffi.cdef("""
typedef struct {
    GhosttyTerminalScrollViewportTag tag;
    struct { intptr_t delta; uint64_t pad; } value;
} SandboxConsoleScroll;
""")
_scroll_viewport = union_fn("ghostty_terminal_scroll_viewport", "void(*)(GhosttyTerminal, SandboxConsoleScroll)")


class GhosttyEmulator:
    """An `Emulator`. Images are off. Titles, notifications and clipboard writes have no handler and no effect."""

    def __init__(self, cols: int = 80, rows: int = 24, scrollback: int = SCROLLBACK_LINES) -> None:
        self.cols, self.rows = cols, rows
        self._replies: list[bytes] = []
        self._wrap(Terminal(cols, rows, scrollback + _PAGE_LINES))
        self._terminal.on_reply(self._replies.append)
        self._limit()
        self._blank()

    def _limit(self) -> None:
        self._set(lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES, ffi.new("size_t*", _SCROLLBACK_BYTES))
        self._set(lib.GHOSTTY_TERMINAL_OPT_CONTINUATION_MAX_BYTES, ffi.new("size_t*", _UNFINISHED_BYTES))
        self._set(lib.GHOSTTY_TERMINAL_OPT_KITTY_IMAGE_STORAGE_LIMIT, ffi.new("uint64_t*", 0))
        self._set(lib.GHOSTTY_TERMINAL_OPT_TITLE_REPORT, ffi.new("bool*", False))
        self.bells = 0
        self._on_bell = ffi.callback("GhosttyTerminalBellFn", self._ring)
        self._set(lib.GHOSTTY_TERMINAL_OPT_BELL, self._on_bell)

    def _wrap(self, terminal: Any) -> None:
        """Read a terminal through a render state of its own."""
        self._terminal: Any = terminal
        self._handle = terminal._t[0]  # noqa: SLF001 - pyghostty's layer 0 is its only way to the render state
        self._state = _new("GhosttyRenderState", lib.ghostty_render_state_new, lib.ghostty_render_state_free)
        self._rows = _new(
            "GhosttyRenderStateRowIterator",
            lib.ghostty_render_state_row_iterator_new,
            lib.ghostty_render_state_row_iterator_free,
        )
        self._cells = _new(
            "GhosttyRenderStateRowCells",
            lib.ghostty_render_state_row_cells_new,
            lib.ghostty_render_state_row_cells_free,
        )
        self._style_slot, self._rgb_slot = init_sized("GhosttyStyle"), ffi.new("GhosttyColorRgb*")
        self._lines: list[list[Segment]] = []

    def _set(self, option: int, value: Any) -> None:
        check(lib.ghostty_terminal_set(self._handle, option, value), "terminal_set")

    def _blank(self) -> None:
        self._lines = [[Segment(" " * self.cols)] for _ in range(self.rows)]

    def feed(self, data: bytes) -> bytes:
        if _DELETE in data:
            data = data.replace(_DELETE, b"")
        if data.count(_BELL) > _BELLS_COUNTED:
            self._set(lib.GHOSTTY_TERMINAL_OPT_BELL, ffi.NULL)
            self._terminal.feed(data)
            self._set(lib.GHOSTTY_TERMINAL_OPT_BELL, self._on_bell)
            self._ring()
        else:
            self._terminal.feed(data)
        self._keep_size()
        replies = b"".join(self._replies)
        self._replies.clear()
        return replies

    def _keep_size(self) -> None:
        """Undo a change of size by the guest (DECCOLM): the view and the guest's PTY still have the old one."""
        if self._terminal.mode(_ALLOW_132_COLUMNS):
            off = ffi.new("GhosttyTerminalModeConfig*", {"mode": _ALLOW_132_COLUMNS, "value": False})
            self._set(lib.GHOSTTY_TERMINAL_OPT_MODE, off)
        if self._terminal.get("cols", "uint16_t") != self.cols:
            self._terminal.resize(self.cols, self.rows)

    def _ring(self, *_: Any) -> None:
        self.bells += 1

    @property
    def title(self) -> str:
        found = self._terminal.get("title", "GhosttyString")
        return bytes(ffi.buffer(found.ptr, min(found.len, _TITLE_MOST))).decode("utf-8", "replace") if found.len else ""

    def resize(self, cols: int, rows: int) -> None:
        if (cols, rows) == (self.cols, self.rows):  # blanked rows would not be read again
            return
        self._terminal.resize(cols, rows)
        self.cols, self.rows = cols, rows
        self._blank()

    def refresh(self) -> Sequence[int]:
        state = self._state[0]
        check(lib.ghostty_render_state_update(state, self._handle), "render_state_update")
        check(lib.ghostty_render_state_get(state, lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR, self._rows), "rows")
        changed: list[int] = []
        at = ffi.new("uint16_t*")
        while lib.ghostty_render_state_row_iterator_next_dirty(self._rows[0], at):
            if at[0] < self.rows:
                self._lines[at[0]] = self._read_row()
                changed.append(at[0])
        check(lib.ghostty_render_state_clean(state), "render_state_clean")
        return changed

    def _read_row(self) -> list[Segment]:
        view = ffi.new("GhosttyCellsView*")
        row = self._rows[0]
        check(lib.ghostty_render_state_row_get(row, lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW, view), "cells_raw")
        check(lib.ghostty_render_state_row_get(row, lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS, self._cells), "cells")
        raw = memoryview(ffi.buffer(view.ptr, view.len * 8)).cast("Q").tolist()
        segments: list[Segment] = []
        styles: dict[int, Style | None] = {0: None}  # for this row only: other pages number their styles differently
        at = 0
        plain = LAYOUT.plain(raw)
        looks = map(LAYOUT.look, raw) if plain is None else map(LAYOUT.style.mask.__and__, raw)
        for look, cells in groupby(looks):
            end = at + sum(1 for _ in cells)
            if look not in styles:
                styles[look] = self._style(at)
            segments.append(Segment(plain[at:end] if plain is not None else self._text(raw[at:end], at), styles[look]))
            at = end
        return segments

    def _text(self, run: list[int], at: int) -> str:
        parts: list[str] = []
        for offset, cell in enumerate(run):
            code = LAYOUT.codepoint(cell)
            if code < 0x7F and not LAYOUT.is_cluster(cell):
                parts.append(chr(code) if code >= 0x20 else "" if LAYOUT.is_tail(cell) else " ")
                continue
            cluster = self._cluster(at + offset) if LAYOUT.is_cluster(cell) else chr(code)
            parts.append(refit(cluster, 2 if LAYOUT.is_wide(cell) else 1))
        return "".join(parts)

    def _cell(self, x: int, data: int, out: Any) -> bool:
        check(lib.ghostty_render_state_row_cells_select(self._cells[0], x), "select")
        return bool(lib.ghostty_render_state_row_cells_get(self._cells[0], data, out) == lib.GHOSTTY_SUCCESS)

    def _cluster(self, x: int) -> str:
        length = ffi.new("uint32_t*")
        self._cell(x, lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_LEN, length)
        buffer = ffi.new("uint32_t[]", max(length[0], 1))
        self._cell(x, lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_BUF, buffer)
        return "".join(chr(code) for code in buffer[0 : min(length[0], 16)])

    def _style(self, x: int) -> Style:
        style = self._style_slot
        self._cell(x, lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_STYLE, style)
        attributes = tuple(name for ghostty, name in _ATTRIBUTES if getattr(style, ghostty))
        return _rich_style(
            self._color(x, lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_FG_COLOR),
            self._color(x, lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_BG_COLOR),
            attributes,
        )

    def _color(self, x: int, data: int) -> tuple[int, int, int] | None:
        rgb = self._rgb_slot
        return (rgb.r, rgb.g, rgb.b) if self._cell(x, data, rgb) else None

    def line(self, y: int) -> Sequence[Segment]:
        return self._lines[y]

    def text(self) -> str:
        return "\n".join("".join(segment.text for segment in line).rstrip() for line in self._lines)

    @property
    def cursor(self) -> Cursor | None:
        cursor = init_sized("GhosttyRenderStateCursor")
        check(lib.ghostty_render_state_get(self._state[0], lib.GHOSTTY_RENDER_STATE_DATA_CURSOR, cursor), "cursor")
        if not (cursor.visible and cursor.viewport_has_value):
            return None
        return Cursor(cursor.viewport_x - cursor.wide_tail, cursor.viewport_y, 1 + cursor.wide_tail)

    @property
    def mouse_wanted(self) -> bool:
        return bool(self._terminal.get("mouse_tracking", "bool"))

    @property
    def alternate_screen(self) -> bool:
        return bool(self._terminal.get("active_screen", "GhosttyTerminalScreen") != lib.GHOSTTY_TERMINAL_SCREEN_PRIMARY)

    @property
    def scrolled(self) -> int:
        bar = self._terminal.get("scrollbar", "GhosttyTerminalScrollbar")
        return int(bar.total - bar.len - bar.offset)

    def scroll(self, lines: int) -> None:
        self._viewport(lib.GHOSTTY_SCROLL_VIEWPORT_DELTA, lines)

    def scroll_end(self) -> None:
        self._viewport(lib.GHOSTTY_SCROLL_VIEWPORT_BOTTOM, 0)

    def _viewport(self, tag: int, delta: int) -> None:
        _scroll_viewport(self._handle, ffi.new("SandboxConsoleScroll*", {"tag": tag, "value": {"delta": delta}})[0])

    @property
    def top(self) -> int:
        return int(self._terminal.get("scrollbar", "GhosttyTerminalScrollbar").offset)

    @property
    def total(self) -> int:
        return int(self._terminal.get("scrollbar", "GhosttyTerminalScrollbar").total)

    def scroll_to(self, row: int) -> None:
        self.scroll(max(0, min(row, self.total - self.rows)) - self.top)

    def freeze(self) -> GhosttyEmulator:
        copy = self.duplicate()
        copy.scroll_to(self.top)
        copy.refresh()
        return copy

    def duplicate(self) -> GhosttyEmulator:
        copy = GhosttyEmulator.__new__(GhosttyEmulator)
        copy.cols, copy.rows, copy._replies = self.cols, self.rows, []  # noqa: SLF001
        copy._wrap(self._cloned())  # noqa: SLF001
        copy._limit()  # noqa: SLF001
        copy._blank()  # noqa: SLF001
        return copy

    def _cloned(self) -> Any:
        try:
            return ghostty_text.clone(self._terminal)
        except GhosttyError:  # a sequence is unfinished after more than _UNFINISHED_BYTES
            self._terminal.feed(_CANCEL)
            return ghostty_text.clone(self._terminal)

    def text_between(self, span: Span, *, block: bool = False) -> str:
        return ghostty_text.text_between(self._terminal, span, block=block)

    def word_at(self, at: Point) -> Span | None:
        return ghostty_text.word_at(self._terminal, at)

    def link_at(self, at: Point) -> str:
        return ghostty_text.link_at(self._terminal, at)

    def search(self, wanted: str) -> Matches:
        return ghostty_text.Search(self._terminal, wanted)

    def key(self, name: str, character: str | None) -> bytes:
        press = translate(name, character)
        event = _new("GhosttyKeyEvent", lib.ghostty_key_event_new, lib.ghostty_key_event_free)
        encoder = _new("GhosttyKeyEncoder", lib.ghostty_key_encoder_new, lib.ghostty_key_encoder_free)
        lib.ghostty_key_encoder_setopt_from_terminal(encoder[0], self._handle)
        lib.ghostty_key_event_set_action(event[0], lib.GHOSTTY_KEY_ACTION_PRESS)
        lib.ghostty_key_event_set_key(event[0], press.key)
        lib.ghostty_key_event_set_mods(event[0], press.mods)
        lib.ghostty_key_event_set_consumed_mods(event[0], press.consumed)
        lib.ghostty_key_event_set_unshifted_codepoint(event[0], press.unshifted)
        text = press.text.encode("utf-8", "replace")
        owned = ffi.new("char[]", text)  # the event borrows it until it is encoded
        lib.ghostty_key_event_set_utf8(event[0], owned, len(text))
        return _encoded(lib.ghostty_key_encoder_encode, encoder[0], event[0]) or press.fallback

    def paste(self, text: str) -> bytes:
        return paste_bytes(text, bracketed=self._terminal.mode(_BRACKETED_PASTE))

    def mouse(self, action: MouseAction, button: int, x: int, y: int, mods: frozenset[str]) -> bytes:
        event = _new("GhosttyMouseEvent", lib.ghostty_mouse_event_new, lib.ghostty_mouse_event_free)
        encoder = _new("GhosttyMouseEncoder", lib.ghostty_mouse_encoder_new, lib.ghostty_mouse_encoder_free)
        lib.ghostty_mouse_encoder_setopt_from_terminal(encoder[0], self._handle)
        size = init_sized("GhosttyMouseEncoderSize")
        size.screen_width, size.screen_height, size.cell_width, size.cell_height = self.cols, self.rows, 1, 1
        lib.ghostty_mouse_encoder_setopt(encoder[0], lib.GHOSTTY_MOUSE_ENCODER_OPT_SIZE, size)
        pressed = ffi.new("bool*", button != 0 and action != "release")
        lib.ghostty_mouse_encoder_setopt(encoder[0], lib.GHOSTTY_MOUSE_ENCODER_OPT_ANY_BUTTON_PRESSED, pressed)
        lib.ghostty_mouse_event_set_action(event[0], _MOUSE_ACTIONS[action])
        if button in _BUTTONS:
            lib.ghostty_mouse_event_set_button(event[0], _BUTTONS[button])
        lib.ghostty_mouse_event_set_mods(event[0], sum(MODS[mod] for mod in mods))
        lib.ghostty_mouse_event_set_position(event[0], ffi.new("GhosttyMousePosition*", {"x": x, "y": y})[0])
        return _encoded(lib.ghostty_mouse_encoder_encode, encoder[0], event[0])

    def close(self) -> None:
        if self._terminal._t is not None:  # noqa: SLF001 - pyghostty's own mark of a closed terminal
            for handle in (self._cells, self._rows, self._state):
                ffi.release(handle)
            self._terminal.close()


@lru_cache(maxsize=8192)
def _rich_style(fg: Rgb | None, bg: Rgb | None, attributes: tuple[str, ...]) -> Style:
    flags: dict[str, bool] = dict.fromkeys(attributes, True)
    if fg is not None or bg is not None:
        fg = readable(fg or INK, bg or GROUND)
    color, bgcolor = (rgb and Color.from_rgb(*rgb) for rgb in (fg, bg))
    return Style(color=color, bgcolor=bgcolor, **flags)  # type: ignore[arg-type]


def _new(kind: str, make: Any, free: Any) -> Any:
    slot = ffi.new(f"{kind}*")
    check(make(ffi.NULL, slot), kind)
    return ffi.gc(slot, lambda owned: free(owned[0]))


def _encoded(encode: Any, encoder: Any, event: Any) -> bytes:
    buffer, length = ffi.new("char[]", 256), ffi.new("size_t*")
    check(encode(encoder, event, buffer, 256, length), "encode")
    return bytes(ffi.buffer(buffer, length[0]))
