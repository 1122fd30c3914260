"""Reads text, words, links and matches of a libghostty terminal, by row and column from its oldest line."""

from __future__ import annotations

import weakref
from typing import Any

from pyghostty import GhosttyError, Terminal, ffi, lib
from pyghostty._ffi import check  # private: pyghostty is pinned
from pyghostty.core import init_sized, read_buf

from sandbox_console.tui.widgets.terminal.emulator import Point, Span

_URI_MOST = 4096


def clone(terminal: Any) -> Any:
    """Return a copy of a terminal, with screen, modes, scrollback and any unfinished sequence. Raises GhosttyError."""
    out, length = ffi.new("uint8_t**"), ffi.new("size_t*")
    check(lib.ghostty_snapshot_encode_alloc(terminal._t[0], ffi.NULL, out, length), "snapshot")  # noqa: SLF001
    decoder, handle = ffi.new("GhosttySnapshotDecoder*"), ffi.new("GhosttyTerminal*")
    try:
        check(lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, out[0], length[0]), "snapshot_decoder")
        try:
            check(lib.ghostty_snapshot_decoder_decode(decoder[0], handle), "snapshot_decode")
        finally:
            lib.ghostty_snapshot_decoder_free(decoder[0])
    finally:
        lib.ghostty_free(ffi.NULL, out[0], length[0])
    copy = Terminal.__new__(Terminal)  # its constructor would make another terminal
    copy._t, copy._free = handle, weakref.finalize(copy, lib.ghostty_terminal_free, handle[0])  # noqa: SLF001
    copy._unknown_cb = copy._reply_cb = copy._cb_err = None  # noqa: SLF001
    return copy


def text_between(terminal: Any, span: Span, *, block: bool) -> str:
    """Return the text of a span: soft-wrapped lines joined, trailing blanks cut. With ``block``, of the rectangle."""
    selection = init_sized("GhosttySelection")
    selection.start = terminal.ref(*span.start, "screen")[0]
    selection.end = terminal.ref(*span.end, "screen")[0]
    selection.rectangle = block
    options = init_sized("GhosttyTerminalSelectionFormatOptions")
    options.emit = lib.GHOSTTY_FORMATTER_FORMAT_PLAIN
    options.unwrap, options.trim, options.selection = not block, True, selection
    handle = terminal._t[0]  # noqa: SLF001

    def read(buffer: Any, size: int, written: Any) -> int:
        return int(lib.ghostty_terminal_selection_format_buf(handle, options[0], buffer, size, written))

    return str(read_buf(read))


def word_at(terminal: Any, at: Point) -> Span | None:
    """Return the word at a cell."""
    options = init_sized("GhosttyTerminalSelectWordOptions")
    options.ref = terminal.ref(*at, "screen")[0]
    found = init_sized("GhosttySelection")
    if lib.ghostty_terminal_select_word(terminal._t[0], options, found) != lib.GHOSTTY_SUCCESS:  # noqa: SLF001
        return None
    return span_of(terminal, found)


def span_of(terminal: Any, selection: Any) -> Span | None:
    """Return where a selection of the library is."""
    start, end = _point(terminal, selection.start), _point(terminal, selection.end)
    return Span(min(start, end, key=_order), max(start, end, key=_order)) if start and end else None


def _order(point: Point) -> tuple[int, int]:
    return point[1], point[0]


def _point(terminal: Any, ref: Any) -> Point | None:
    out, owned = ffi.new("GhosttyPointCoordinate*"), ffi.new("GhosttyGridRef*", ref)
    handle, tag = terminal._t[0], lib.GHOSTTY_POINT_TAG_SCREEN  # noqa: SLF001
    result = lib.ghostty_terminal_point_from_grid_ref(handle, owned, tag, out)
    return (int(out.x), int(out.y)) if result == lib.GHOSTTY_SUCCESS else None


def link_at(terminal: Any, at: Point) -> str:
    """Return the address that the guest has set for a cell (OSC 8), or an empty string."""
    buffer, length = ffi.new("uint8_t[]", _URI_MOST), ffi.new("size_t*")
    try:
        result = lib.ghostty_grid_ref_hyperlink_uri(terminal.ref(*at, "screen"), buffer, _URI_MOST, length)
    except GhosttyError:
        return ""
    return bytes(ffi.buffer(buffer, length[0])).decode("utf-8", "replace") if result == lib.GHOSTTY_SUCCESS else ""


class Search:
    """The matches of a text, ignoring case, in a terminal that does not change any more."""

    def __init__(self, terminal: Any, wanted: str) -> None:
        self._terminal = terminal
        slot = ffi.new("GhosttySearch*")
        check(lib.ghostty_search_new(ffi.NULL, slot, terminal._t[0]), "search_new")  # noqa: SLF001
        self._search = ffi.gc(slot, lambda owned: lib.ghostty_search_free(owned[0]))
        text = wanted.encode("utf-8", "replace")
        self._text = ffi.new("uint8_t[]", text)
        needle = ffi.new("GhosttyString*", {"ptr": self._text, "len": len(text)})
        self._set(lib.GHOSTTY_SEARCH_OPT_NEEDLE, needle)
        check(lib.ghostty_search_run(self._search[0]), "search_run")

    def _set(self, option: int, value: Any) -> bool:
        return bool(lib.ghostty_search_set(self._search[0], option, value) == lib.GHOSTTY_SUCCESS)

    def _get(self, data: int, out: Any) -> bool:
        return bool(lib.ghostty_search_get(self._search[0], data, out) == lib.GHOSTTY_SUCCESS)

    @property
    def count(self) -> int:
        """The number of matches."""
        out = ffi.new("size_t*")
        return int(out[0]) if self._get(lib.GHOSTTY_SEARCH_DATA_TOTAL_MATCHES, out) else 0

    def step(self, direction: int) -> Span | None:
        """Select the next match towards older lines (-1) or newer ones (1), around the end. Scrolls to it."""
        option = lib.GHOSTTY_SEARCH_OPT_SELECT_NEXT if direction < 0 else lib.GHOSTTY_SEARCH_OPT_SELECT_PREV
        self._set(option, ffi.NULL)
        check(lib.ghostty_search_run(self._search[0]), "search_run")
        found = init_sized("GhosttySelection")
        return span_of(self._terminal, found) if self._get(lib.GHOSTTY_SEARCH_DATA_SELECTED_MATCH, found) else None

    @property
    def index(self) -> int:
        """The number of the selected match, from 1 at the oldest. 0 if there is none."""
        out = ffi.new("size_t*")
        return self.count - int(out[0]) if self._get(lib.GHOSTTY_SEARCH_DATA_SELECTED_INDEX, out) else 0
