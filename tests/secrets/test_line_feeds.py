"""A value that a control string with a line feed in it breaks up is whole on no terminal."""

from __future__ import annotations

import random

import pytest

from sandbox_console.cli.terminal_filter import ScreenFilter
from sandbox_console.secrets.control_strings import LineFeeds
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

SECRET = "correct-horse-battery"
STRINGS = [
    b"\x1b]0;\nX\x07", b"\x1bP\nq\x1b\\", b"\x1b_a\nb\nc\x1b\\", b"\x1b^a\r\nb\x1b\\", b"\x1bXa\nb\x18", b"\x1b\x00]0;\n\x07",
    b"\xc2\x9d0;\nX\x07",
]  # fmt: skip


def on_screen(data: bytes) -> str:
    emulator = GhosttyEmulator(80, 24)
    emulator.feed(data)
    emulator.refresh()
    return emulator.text()


@pytest.mark.parametrize("string", STRINGS)
@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_it_is_whole_on_no_screen(string: bytes, piece: int) -> None:
    data = SECRET[:4].encode() + string + SECRET[4:].encode() + b"\r\n"
    mask = StreamRedactor(Redactor([SECRET]), (80, 24))
    out = b"".join(mask.feed(data[at : at + piece]) for at in range(0, len(data), piece)) + mask.flush()
    assert SECRET not in on_screen(out)
    assert SECRET.encode() not in ScreenFilter().feed(out)
    assert SECRET.encode() not in ScreenFilter().feed(data), "what a command prints has no screen of its own"


@pytest.mark.parametrize(
    "data", [b"\x1b]0;title\x07text\n", b"\x1bPq#0\x1b\\a\nb\n", b"a\n\x1b[31mb\nc", "é\u009dx".encode()]
)
@pytest.mark.parametrize("piece", [1, 2, 1000])
def test_other_strings_stay_as_they_are(data: bytes, piece: int) -> None:
    feeds = LineFeeds()
    assert b"".join(feeds.feed(data[at : at + piece]) for at in range(0, len(data), piece)) == data


def test_what_follows_in_the_string_stays_hidden_and_text_does_not() -> None:
    assert on_screen(LineFeeds().feed(b"a\x1bPq1\n2\n3\x1b\\b")).split() == ["a", "b"]
    assert LineFeeds().feed("said\u009d\nnext\n".encode()) == "said\u009d\x18\r\nnext\n".encode()


def test_pieces_make_no_difference() -> None:
    chance = random.Random(7)
    for _ in range(300):
        data = bytes(chance.choice(b"\x1b\x1b]P\\\x07\n\x18ab[m\x00") for _ in range(60))
        feeds, cut = LineFeeds(), chance.randrange(60)
        assert feeds.feed(data[:cut]) + feeds.feed(data[cut:]) == LineFeeds().feed(data)
