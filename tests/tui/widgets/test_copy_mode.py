"""Copy mode on a real emulator: moving, selecting, copying, searching and links, while the guest goes on."""

from __future__ import annotations

import pytest

from sandbox_console.tui.widgets.terminal.copy_mode import CopyMode, plain_links
from sandbox_console.tui.widgets.terminal.ghostty import SCROLLBACK_LINES, GhosttyEmulator


@pytest.fixture
def emulator():
    one = GhosttyEmulator(40, 10)
    yield one
    one.close()


@pytest.fixture
def copying(emulator):
    """A function that feeds the emulator and freezes it; the cursor is at the beginning of a line."""
    made = []

    def begin(data: bytes, x=0, y=0):
        emulator.feed(data)
        emulator.refresh()
        made.append(CopyMode(emulator))
        made[-1].move_to(x, y)
        return made[-1]

    yield begin
    for one in made:
        one.close()


def test_what_is_frozen_stays_while_the_guest_writes(emulator, copying):
    mode = copying(b"".join(b"line %d\r\n" % at for at in range(50)), 0, 40)
    mode.select("lines")
    emulator.feed(b"\x1b[2J\x1b[Hgone" + b"x\r\n" * 20_000)
    emulator.refresh()
    assert mode.text == "line 40"
    assert "line 4" in mode.screen.text()
    assert "line" not in emulator.text()


@pytest.mark.parametrize("unfinished", [b"\x1b[3", b"\x1b]0;title", "€".encode()[:2], b"\x1bP" + b"x" * 200_000])
def test_a_guest_inside_a_sequence_is_copied_from(emulator, copying, unfinished):
    mode = copying(b"first\r\n" + unfinished)
    mode.select("lines")
    assert mode.text == "first"


@pytest.mark.parametrize(
    ("kind", "moves", "text"),
    [
        ("", 0, "one two   three"),
        ("cells", 6, "one two"),
        ("lines", 0, "one two   three"),
        ("cells", 40, "one two   three\nf"),
        ("block", 40 * 2 + 2, "one\nfou\nsev"),
    ],
)
def test_what_is_copied_has_no_trailing_blanks(copying, kind, moves, text):
    mode = copying(b"one two   three   \r\nfour five six  \r\nseven\r\n")
    if kind:
        mode.select(kind)
    mode.move(moves, 0)
    assert mode.text == text


def test_a_line_that_was_wrapped_is_copied_as_one(copying):
    mode = copying(b"a" * 100 + b"\r\nb\r\n")
    mode.select("cells")
    mode.move_to(0, 3)
    assert mode.text == "a" * 100 + "\nb"


def test_wide_characters_are_copied_whole(copying):
    mode = copying("漢字 ok é\r\n".encode())
    mode.select("cells")
    mode.line_end()
    assert (mode.x, mode.text) == (8, "漢字 ok é")


def test_words_and_the_other_end(copying):
    mode = copying(b"alpha  beta.gamma\r\ndelta\r\n")
    places = []
    for _ in range(5):
        mode.word(1)
        places.append((mode.x, mode.y))
    assert places == [(7, 0), (11, 0), (12, 0), (0, 1), (0, 1)]
    mode.word(-1)
    assert (mode.x, mode.y) == (12, 0)
    mode.select("cells")
    mode.word_end()
    assert mode.text == "gamma"
    mode.other_end()
    assert (mode.x, mode.text) == (12, "gamma")


def test_a_search_counts_and_goes_round(copying):
    mode = copying(b"".join(b"line %d Foo\r\n" % at for at in range(200)))
    mode.search("foo")
    assert (mode.matches.count, mode.matches.index, mode.y) == (200, 200, 199)
    mode.next_match(-1)
    assert (mode.matches.index, mode.y) == (199, 198)
    mode.next_match(1)
    mode.next_match(1)
    assert (mode.matches.index, mode.y) == (1, 0), "around the end"
    assert mode.screen.top == 0
    assert "matches 1/200" in mode.status_text
    mode.search("nothing of this")
    assert mode.status_text.endswith("matches none")
    assert [*mode.matches_in(0, "line 0 Foo")] == []


def test_a_match_over_a_wrapped_line_is_found(copying):
    mode = copying(b"x" * 38 + b"needle" + b"y" * 30 + b"\r\n")
    mode.search("needle")
    assert mode.matches.count == 1
    assert [*mode.matches_in(0, "")] == [(38, 40)]
    assert [*mode.matches_in(1, "")] == [(0, 4)]


@pytest.mark.parametrize("wanted", [".*", "[", "\\", "a" * 3000, "漢", "\x1b[31m", "é"])
def test_a_search_takes_any_text_as_it_is(copying, wanted):
    mode = copying("plain . * text 漢 é\r\n".encode())
    mode.search(wanted)
    assert mode.matches.count == (1 if wanted in "漢é" else 0)


def test_links_of_both_kinds(copying):
    text = (
        b"see https://a.example/x?y=1). \x1b]8;;https://b.example/\x1b\\here\x1b]8;;\x1b\\ and javascript:alert(1)\r\n"
    )
    mode = copying(text)
    assert mode.links() == ["https://b.example/", "https://a.example/x?y=1"]
    assert mode.link_at(6, 0) == "https://a.example/x?y=1"
    assert mode.link_at(31, 0) == "https://b.example/"
    assert mode.link_at(0, 0) == ""
    assert [*plain_links("ftp://x file:///etc http://")] == []


def test_moves_stay_inside(copying):
    mode = copying(b"a\r\n" * 30)
    for move in (
        lambda: mode.move(-1, 0),
        lambda: mode.move(0, -5),
        lambda: mode.page(-9),
        lambda: mode.move_to(-3, -3),
    ):
        move()
        assert (mode.x, mode.y) == (0, 0)
    mode.page(99)
    mode.move(10**6, 0)
    assert (mode.x, mode.y) == (39, mode.screen.total - 1)


def test_ten_thousand_lines_of_120_columns_are_kept():
    emulator = GhosttyEmulator(120, 40)
    for _ in range(120):
        emulator.feed((b"x" * 119 + b"\r\n") * 100)
    assert emulator.total - emulator.rows >= SCROLLBACK_LINES
    emulator.close()
