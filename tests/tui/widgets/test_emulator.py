"""The emulator behind the terminal view: what is read row by row is what the terminal holds."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from sandbox_console.model.text import strip_unsafe
from sandbox_console.shell_holder.screen import Screen
from sandbox_console.tui.widgets.terminal.emulator import paste_bytes, refit
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

PIECES = [
    b"hello", b"\r\n", b"\x1b[A", b"\x1b[L", b"\x1b[M", b"\x1b[2;5r", b"\x1b[r", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[2J",
    b"\x1b[H", b"\x1bM", b"\x1bD", b"\x1b[3S", b"\x1b[2T", b"\x1b[K", b"\x1b[1;31m", "漢字".encode(), b"\x1b[5;3H", b"x" * 30,
    b"\x1b[4P", b"\x1b[3@", b"\x1b[7m", b"\x1b[0m", b"\n", b"\x1b[48;5;3m", "e\u0301".encode(),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_rows_read_when_changed_agree_with_the_whole_screen(seed):
    rng = random.Random(seed)
    for _ in range(20):
        emulator = GhosttyEmulator(20, 8)
        for _ in range(100):
            if rng.random() < 0.1:
                emulator.resize(rng.choice([emulator.cols, rng.randrange(2, 40)]), rng.choice([emulator.rows, 5]))
            elif rng.random() < 0.1:
                emulator.scroll(rng.randrange(-5, 5))
            emulator.feed(rng.choice(PIECES))
            if rng.random() < 0.5:
                emulator.refresh()
                rows = ["".join(segment.text for segment in emulator.line(y)) for y in range(emulator.rows)]
                assert {cell_len(row) for row in rows} == {emulator.cols}
                if emulator.scrolled == 0:
                    whole = [row.rstrip() for row in emulator._terminal.text().split("\n")]
                    assert [row.rstrip() for row in rows] == whole + [""] * (emulator.rows - len(whole))
        emulator.close()


def test_random_bytes_neither_crash_nor_leave_controls():
    rng = random.Random(1)
    emulator = GhosttyEmulator(30, 6)
    for _ in range(3000):
        emulator.feed(rng.choice(PIECES) + rng.randbytes(8))
        emulator.refresh()
        shown = emulator.text().replace("\n", "")
        assert strip_unsafe(shown) == shown


@pytest.mark.parametrize(
    "data",
    [b"\x1b[?40h\x1b[?3h", b"\x1b[?40;3h", b"\x1b[?40h\x1b[?3h\x1b[?40l", b"\x1b[?40h|\x1b[?3h", b"\x1b[?4|0;3h"],
)
def test_the_guest_cannot_change_the_size(data: bytes) -> None:
    emulator, holder = GhosttyEmulator(20, 8), Screen(20, 8, 1 << 20)
    for part in (*data.split(b"|"), b"x" * 30):
        emulator.feed(part)
        holder.feed(part)
    emulator.refresh()
    assert [len(line) for line in emulator.text().rstrip().split("\n")] == [20, 10]
    assert {sum(segment.cell_length for segment in emulator.line(y)) for y in range(8)} == {20}
    viewer = GhosttyEmulator(20, 8)
    viewer.feed(holder.snapshot())
    viewer.refresh()
    assert viewer.text() == emulator.text()


def test_delete_is_no_character() -> None:
    emulator, holder = GhosttyEmulator(20, 8), Screen(20, 8, 1 << 20)
    for one in (emulator, holder):
        one.feed(b"a\x7fb\x1b[\x7f31mc")
    emulator.refresh()
    assert emulator.text().rstrip() == "abc"
    assert b"\x7f" not in holder.snapshot()


def test_it_can_be_closed_twice_and_many_leak_nothing():
    for _ in range(300):
        emulator = GhosttyEmulator(200, 60)
        emulator.feed(b"x" * 20_000)
        emulator.refresh()
        emulator.close()
        emulator.close()


@pytest.mark.parametrize(
    ("cluster", "width", "shown"),
    [
        ("a", 1, "a"),
        ("漢", 2, "漢"),
        ("👨\u200d", 2, "👨"),
        ("\u3164", 2, "\ufffd "),
        ("\u202e", 1, "\ufffd"),
        ("e\u0301", 1, "e\u0301"),
    ],
)
def test_cells_are_refitted(cluster, width, shown):
    assert refit(cluster, width) == shown
    assert cell_len(refit(cluster, width)) == width


def test_a_paste_cannot_end_its_own_brackets():
    hostile = "a\x1b[201~b\x9b201~c\x1b[20\x1b[201~1~d\x03\x1be"
    body = paste_bytes(hostile, bracketed=True).removeprefix(b"\x1b[200~").removesuffix(b"\x1b[201~")
    assert b"\x1b" not in body
    assert "\x9b".encode() not in body
    assert paste_bytes("one\r\ntwo\n\tthree", bracketed=False) == b"one\rtwo\r\tthree"
