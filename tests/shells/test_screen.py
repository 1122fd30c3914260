"""The state of a kept shell's terminal: what a viewer gets is what was on the screen."""

from __future__ import annotations

import ctypes
import random

import pytest
from pyghostty import Terminal, ffi, lib
from pyghostty._ffi import check

from sandbox_console.shell_holder import screen
from sandbox_console.shell_holder.screen import FormatOptions, Screen, ScreenExtra, TerminalExtra

BYTES = 8 << 20


def emulator(cols: int, rows: int) -> Terminal:
    found = Terminal(cols, rows, 1 << 40)
    size = ffi.new("size_t*", BYTES)
    check(lib.ghostty_terminal_set(found._t[0], lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES, size), "limit")
    return found


def state(one: Terminal) -> dict[str, object]:
    """What is seen, and what decides how further output is shown."""
    return {
        "text": one.text(), "cursor": one.cursor, "rows": one.get("total_rows", "size_t"),
        "alternate": one.get("active_screen", "GhosttyTerminalScreen"),
        "modes": [one.mode(mode) for mode in (1, 7, 25, 1000, 1006, 1049, 2004)],
        "styles": [one.style(x, y) for y in range(one.size[1]) for x in range(0, one.size[0], 9)],
    }  # fmt: skip


def test_the_numbers_and_layouts_are_those_of_the_pinned_library() -> None:
    options = (
        "WRITE_PTY",
        "KITTY_IMAGE_STORAGE_LIMIT",
        "SCROLLBACK_MAX_BYTES",
        "SCROLLBACK_MAX_LINES",
        "TITLE_REPORT",
        "MODE",
    )
    assert [getattr(lib, f"GHOSTTY_TERMINAL_OPT_{name}") for name in options] == [
        screen.WRITE_PTY, screen.IMAGE_LIMIT, screen.MAX_BYTES, screen.MAX_LINES, screen.TITLE_REPORT, screen.SET_MODE,
    ]  # fmt: skip
    assert lib.GHOSTTY_TERMINAL_DATA_COLS == screen.COLS
    assert lib.GHOSTTY_TERMINAL_DATA_ACTIVE_SCREEN == screen.ACTIVE_SCREEN
    assert (lib.GHOSTTY_TERMINAL_DATA_TOTAL_ROWS, lib.GHOSTTY_TERMINAL_SCREEN_PRIMARY) == (screen.TOTAL_ROWS, 0)
    assert lib.GHOSTTY_FORMATTER_FORMAT_VT == screen.FORMAT_VT
    for ours, theirs in (
        (FormatOptions, "GhosttyFormatterTerminalOptions"), (TerminalExtra, "GhosttyFormatterTerminalExtra"),
        (ScreenExtra, "GhosttyFormatterScreenExtra"), (screen.ModeConfig, "GhosttyTerminalModeConfig"),
    ):  # fmt: skip
        assert ctypes.sizeof(ours) == ffi.sizeof(theirs)
        fields = [(name, field.offset) for name, field in ffi.typeof(theirs).fields]
        assert [(name, getattr(ours, name).offset) for name, _ in ours._fields_] == fields


# No tabs: the blanks that one skips come back in the style of the text beside them.
PIECES = (
    b"\x1b[2J", b"\x1b[H", b"\x1b[5;9H", b"\x1b[31m", b"\x1b[1;4m", b"\x1b[0m", b"\r\n" * 7, b"word " * 9, b"x" * 130,
    "日本語 é \U0001f600".encode(), b"\x1b[?2004h\x1b[?1h", b"hello world\r\n", b"\x1b[2;4r", b"\x1b[r", b"\x1b[K",
    b"\x1b[2L", b"\x1b[?25l", b"\x1b[?25h", b"\x1b7", b"\x1b[?1000h\x1b[?1006h",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_gives_another_terminal_the_same_screen(seed: int) -> None:
    chance = random.Random(seed)
    cols, rows = chance.choice([(80, 24), (40, 10), (120, 40), (20, 5)])
    data = b"".join(chance.choices(PIECES, k=chance.randrange(60)))
    if seed % 2:
        data += b"\x1b[?1049h\x1b[2J" + b"".join(chance.choices(PIECES[:-2], k=20))
    ours, theirs, viewer = Screen(cols, rows, BYTES), emulator(cols, rows), emulator(cols, rows)
    ours.feed(data)
    theirs.feed(data)
    viewer.feed(ours.snapshot())
    assert state(viewer) == state(theirs)
    assert ours.snapshot() == ours.snapshot()  # taking one changes nothing
    if seed % 2:
        for one in (theirs, viewer):
            one.feed(b"\x1b[?1049l")
        assert state(viewer) == state(theirs)


def test_the_scrollback_is_limited_by_its_bytes_and_answers_come_from_the_holder() -> None:
    ours, viewer = Screen(80, 24, BYTES), emulator(80, 24)
    for number in range(20_000):
        ours.feed(b"\x1b[3%dmline %d of a long build\x1b[0m\r\n" % (number % 8, number))
    snapshot = ours.snapshot()
    viewer.feed(snapshot)
    assert 8_000 < snapshot.count(b"line ") < 20_000
    assert viewer.contents().endswith("line 19998 of a long build\nline 19999 of a long build")
    assert ours.feed(b"\x1b[6n\x1b]52;c;AAAA\x07\x1b[21t") == b"\x1b[24;1R"


@pytest.mark.parametrize("rows", [24, 30, 60])
def test_a_higher_terminal_goes_on_where_the_guest_is(rows: int) -> None:
    ours, viewer = Screen(80, 17, BYTES), emulator(80, rows)
    ours.feed(b"".join(b"tick %d.\r\n" % number for number in range(1, 40)) + b"\x1b[2A\x1b[Know 38.\r\n")
    viewer.feed(ours.snapshot())
    viewer.feed(b"now 39.\x1b[K\r\n" + b"".join(b"tick %d.\r\n" % number for number in range(40, 99)))
    lines = [line.rstrip() for line in viewer.contents().split("\n") if line.strip()]
    assert [int(line.split()[1].rstrip(".")) for line in lines] == list(range(1, 99))
