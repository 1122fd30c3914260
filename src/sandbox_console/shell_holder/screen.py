"""The state of a kept shell's terminal: libghostty's, called through ctypes.

pyghostty's own layer is not imported: parsing its declarations takes 7 MB in each holder. The numbers and layouts are
those of the library in pyghostty 0.1.3, to which pyproject.toml pins; tests/shells/test_screen.py compares them.
"""

from __future__ import annotations

import ctypes
import re
from importlib.util import find_spec
from pathlib import Path

WRITE_PTY, IMAGE_LIMIT, MAX_BYTES, MAX_LINES, TITLE_REPORT, SET_MODE = 1, 15, 27, 28, 32, 34
"""GHOSTTY_TERMINAL_OPT_*."""

COLS, ACTIVE_SCREEN, TOTAL_ROWS = 1, 6, 14
"""GHOSTTY_TERMINAL_DATA_*."""

FORMAT_VT = 1
CELL_PX = (8, 16)
_NO_LIMIT = 1 << 40
_CURSOR = re.compile(rb"\x1b\[(\d+);(\d+)H")
_TO_PRIMARY, _TO_ALTERNATE = b"\x1b[?47l", b"\x1b[?47h"  # xterm's ctlseqs: switches screens and erases nothing
_ENTER_ALTERNATE, _RESTORE_CURSOR = b"\x1b[?1049h", b"\x1b8"


_ALLOW_132_COLUMNS = 40  # xterm's ctlseqs
_DELETE = b"\x7f"


class ModeConfig(ctypes.Structure):
    """GhosttyTerminalModeConfig."""

    _fields_ = (("mode", ctypes.c_uint16), ("value", ctypes.c_bool))


class ScreenExtra(ctypes.Structure):
    """GhosttyFormatterScreenExtra: what of a screen is written beside its text."""

    _fields_ = (
        ("size", ctypes.c_size_t), ("cursor", ctypes.c_bool), ("style", ctypes.c_bool), ("hyperlink", ctypes.c_bool),
        ("protection", ctypes.c_bool), ("kitty_keyboard", ctypes.c_bool), ("charsets", ctypes.c_bool),
    )  # fmt: skip


class TerminalExtra(ctypes.Structure):
    """GhosttyFormatterTerminalExtra: what of the terminal is written beside its screen."""

    _fields_ = (
        ("size", ctypes.c_size_t), ("palette", ctypes.c_bool), ("modes", ctypes.c_bool),
        ("scrolling_region", ctypes.c_bool), ("tabstops", ctypes.c_bool), ("pwd", ctypes.c_bool),
        ("keyboard", ctypes.c_bool), ("screen", ScreenExtra),
    )  # fmt: skip


class FormatOptions(ctypes.Structure):
    """GhosttyFormatterTerminalOptions."""

    _fields_ = (
        ("size", ctypes.c_size_t), ("emit", ctypes.c_int), ("unwrap", ctypes.c_bool), ("trim", ctypes.c_bool),
        ("extra", TerminalExtra), ("selection", ctypes.c_void_p),
    )  # fmt: skip


_WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _library() -> ctypes.CDLL:
    found = find_spec("pyghostty")
    if found is None or found.origin is None:
        raise ImportError("pyghostty is not installed")
    lib = ctypes.CDLL(str(Path(found.origin).parent / "_lib" / "libghostty-vt.so"))
    handle = ctypes.c_void_p
    lib.ghostty_terminal_new.argtypes = [handle, ctypes.POINTER(handle), ctypes.c_uint16, ctypes.c_uint16]
    lib.ghostty_terminal_set.argtypes = [handle, ctypes.c_int, ctypes.c_void_p]
    lib.ghostty_terminal_get.argtypes = [handle, ctypes.c_int, ctypes.c_void_p]
    lib.ghostty_terminal_vt_write.argtypes = [handle, ctypes.c_char_p, ctypes.c_size_t]
    lib.ghostty_terminal_vt_write.restype = None
    lib.ghostty_terminal_resize.argtypes = [handle, *[ctypes.c_uint16] * 2, *[ctypes.c_uint32] * 2]
    lib.ghostty_formatter_terminal_new.argtypes = [handle, ctypes.POINTER(handle), handle, FormatOptions]
    lib.ghostty_formatter_format_buf.argtypes = [
        handle,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_size_t),
    ]
    lib.ghostty_formatter_free.argtypes = [handle]
    lib.ghostty_formatter_free.restype = None
    return lib


class Screen:
    """A terminal without a window. Raises OSError if the library refuses, as without memory."""

    def __init__(self, cols: int, rows: int, scrollback_bytes: int) -> None:
        self.cols, self.rows = cols, rows
        self._lib = _library()
        self._replies: list[bytes] = []
        self._handle = ctypes.c_void_p()
        _check(self._lib.ghostty_terminal_new(None, ctypes.byref(self._handle), cols, rows))
        self._on_write = _WRITE(lambda _t, _u, data, size: self._replies.append(ctypes.string_at(data, size)))
        self._set(WRITE_PTY, ctypes.cast(self._on_write, ctypes.c_void_p))
        self._set(MAX_LINES, ctypes.byref(ctypes.c_size_t(_NO_LIMIT)))
        self._set(MAX_BYTES, ctypes.byref(ctypes.c_size_t(scrollback_bytes)))
        self._set(IMAGE_LIMIT, ctypes.byref(ctypes.c_uint64(0)))
        self._set(TITLE_REPORT, ctypes.byref(ctypes.c_bool(False)))

    def feed(self, data: bytes) -> bytes:
        """Interpret output of the guest. Returns the terminal's replies, such as a cursor report.

        Like the emulator of the app, it ignores DEL, and the guest cannot change its size (DECCOLM).
        """
        if _DELETE in data:
            data = data.replace(_DELETE, b"")
        self._lib.ghostty_terminal_vt_write(self._handle, data, len(data))
        self._set(SET_MODE, ctypes.byref(ModeConfig(_ALLOW_132_COLUMNS, False)))
        if self._get(COLS, ctypes.c_uint16()) != self.cols:
            self.resize(self.cols, self.rows)
        if not self._replies:
            return b""
        replies = b"".join(self._replies)
        self._replies.clear()
        return replies

    def resize(self, cols: int, rows: int) -> None:
        """Change the size. The primary screen is rewrapped."""
        _check(self._lib.ghostty_terminal_resize(self._handle, cols, rows, *CELL_PX))
        self.cols, self.rows = cols, rows

    def snapshot(self) -> bytes:
        """The bytes that give a new terminal of this size the same scrollback, screen, modes and cursor.

        A line that is wrapped becomes two lines: rows are exact, but are not joined when the terminal is widened.
        """
        if not self._alternate:
            return self._written()
        alternate, text = self._formatted(), self._formatted(state=False)
        # Both screens have one cursor. A program that entered by mode 1049 gets the one back that was saved then.
        self.feed(_TO_PRIMARY + (_RESTORE_CURSOR if _ENTER_ALTERNATE in alternate else b""))
        primary = self._written(modes=False)
        self.feed(_TO_ALTERNATE + alternate[len(text) :])
        return primary + _ENTER_ALTERNATE + b"\x1b[r\x1b[0m" + alternate

    @property
    def _alternate(self) -> bool:
        return self._get(ACTIVE_SCREEN, ctypes.c_int()) != 0

    def _written(self, *, modes: bool = True) -> bytes:
        """The active screen, so that the last row of scrollback and screen is the last one of a higher terminal, too.

        The library leaves out blank rows at the end. If there is scrollback they count, and the cursor's place is
        written from the last row: in a higher terminal, its place from the first row is another one.
        """
        whole = self._formatted(modes=modes)
        rows = self._get(TOTAL_ROWS, ctypes.c_size_t())
        if rows == self.rows:
            return whole
        text = self._formatted(modes=modes, state=False)
        state = whole[len(text) :]
        if missing := rows - whole.count(b"\r\n") - 1:
            text += b"\x1b[0m" + b"\n" * missing
        if place := _CURSOR.match(state):  # none if a scrolling region comes first, which counts from the first row
            up, column = self.rows - int(place[1]), int(place[2])
            state = b"\x1b[%dG" % column + (b"\x1b[%dA" % up if up else b"") + state[place.end() :]
        return text + state

    def _formatted(self, *, modes: bool = True, state: bool = True) -> bytes:
        screen = ScreenExtra(ctypes.sizeof(ScreenExtra), *[state] * 6)
        extra = TerminalExtra(ctypes.sizeof(TerminalExtra), True, modes, state, True, False, True, screen)
        options = FormatOptions(ctypes.sizeof(FormatOptions), FORMAT_VT, False, False, extra, None)
        formatter, size = ctypes.c_void_p(), ctypes.c_size_t()
        _check(self._lib.ghostty_formatter_terminal_new(None, ctypes.byref(formatter), self._handle, options))
        try:
            self._lib.ghostty_formatter_format_buf(formatter, None, 0, ctypes.byref(size))
            buffer = ctypes.create_string_buffer(size.value or 1)
            _check(self._lib.ghostty_formatter_format_buf(formatter, buffer, size, ctypes.byref(size)))
            return buffer.raw[: size.value]
        finally:
            self._lib.ghostty_formatter_free(formatter)

    def _get(self, key: int, slot: ctypes.c_int | ctypes.c_size_t | ctypes.c_uint16) -> int:
        _check(self._lib.ghostty_terminal_get(self._handle, key, ctypes.byref(slot)))
        return int(slot.value)

    def _set(self, option: int, value: object) -> None:
        _check(self._lib.ghostty_terminal_set(self._handle, option, value))


def _check(result: int) -> None:
    if result:
        raise OSError(f"libghostty answered {result}")
