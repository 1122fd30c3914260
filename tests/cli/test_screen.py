"""A guest's shell on the operator's terminal draws, and does nothing else."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_console.cli.exec import LineCleaner
from sandbox_console.cli.terminal_filter import ScreenFilter
from sandbox_console.model.text import clean, strip_unsafe

DRAWS = [
    b"plain text\r\n\ttabbed\x08\x07",
    "w\u00eft\u0142 \u6f22\u5b57 \U0001f600 e\u0301".encode(),
    b"\x1b[1;31mred\x1b[0m\x1b[38;5;200m\x1b[38:2::1:2:3m",
    b"\x1b[2J\x1b[H\x1b[10;20H\x1b[K\x1b[3A\x1b[5b\x1b[2;20r",
    b"\x1b7\x1b8\x1b(0lqk\x1b(B\x0e\x0f\x1b=\x1b>\x1bM",
    b"\x1b[?1049h\x1b[?25l\x1b[?1;7h\x1b[?2004h\x1b[?1000;1006h\x1b[4h",
    b"\x1b[2 q",
]
ACTS = {
    "title": b"\x1b]0;evil\x07",
    "title ended by ST": b"\x1b]2;evil\x1b\\",
    "clipboard": b"\x1b]52;c;ZXZpbA==\x07",
    "clipboard query": b"\x1b]52;c;?\x07",
    "link": b"\x1b]8;;http://evil\x07",
    "notification": b"\x1b]9;evil\x07\x1b]777;notify;a;b\x07",
    "colour query": b"\x1b]11;?\x07",
    "palette": b"\x1b]4;1;red\x07",
    "device attributes": b"\x1b[c\x1b[>c\x1b[=c\x1b[0c",
    "status and cursor reports": b"\x1b[5n\x1b[6n\x1b[?6n",
    "DECRQSS": b"\x1bP$qm\x1b\\",
    "DECRQM": b"\x1b[?2026$p\x1b[4$p",
    "XTGETTCAP": b"\x1bP+q544e\x1b\\",
    "sixel": b"\x1bPq#0;2;0;0;0~-\x1b\\",
    "title report": b"\x1b[21t",
    "window resize and iconify": b"\x1b[8;10;10t\x1b[2t",
    "title stack": b"\x1b[22;0t\x1b[23;0t",
    "terminal parameters": b"\x1b[x",
    "media copy": b"\x1b[5i\x1b[4i",
    "keyboard protocols": b"\x1b[>1u\x1b[=1;1u\x1b[?u\x1b[>4;2m",
    "scrollback erased": b"\x1b[3J",
    "full reset": b"\x1bc",
    "answerback": b"\x05",
    "APC, PM, SOS": b"\x1b_Gi=1;AAAA\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\",
    "C1": "\u009b6n\u009d0;x\u009c\u0090q".encode(),
    "132 columns": b"\x1b[?3h",
    "a mode among allowed ones": b"\x1b[?25;3h",
    "bidi": "\u202e\u2066".encode(),
    "tmux passthrough": b"\x1bPtmux;\x1b\x1b]52;c;AAAA\x07\x1b\\",
    "an escape in an escape": b"\x1b\x1b[6n",
    "private final": b"\x1b[1y\x1b[p",
}


def feed(*chunks: bytes) -> bytes:
    screen = ScreenFilter()
    return b"".join(screen.feed(chunk) for chunk in chunks)


@pytest.mark.parametrize("data", DRAWS)
def test_drawing_passes_as_it_is(data: bytes) -> None:
    assert feed(data) == data


@pytest.mark.parametrize("name", ACTS)
def test_what_acts_is_dropped(name: str) -> None:
    out = feed(b"a" + ACTS[name] + b"\x1b[m.")
    assert out.startswith(b"a")
    assert out.endswith(b"\x1b[m.")
    rest = out[1:-4]
    assert b"\x1b" not in rest
    assert not set(rest.decode()) & set("\x05\x07\u0090\u009b\u009c\u009d\u202e\u2066")


@pytest.mark.parametrize("name", ACTS)
def test_an_unended_sequence_never_comes_out(name: str) -> None:
    for cut in range(1, len(ACTS[name])):
        assert b"\x1b" not in feed(ACTS[name][:cut])


def test_where_it_is_split_makes_no_difference() -> None:
    whole = b"".join(DRAWS) + b"|".join(ACTS.values()) + b"\x1b[m"
    expected = feed(whole)
    chance = random.Random(7)
    for _ in range(200):
        cuts = sorted(chance.sample(range(len(whole)), 12))
        chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        assert feed(*chunks) == expected


def test_an_endless_string_takes_no_memory() -> None:
    screen = ScreenFilter()
    screen.feed(b"\x1b]52;c;")
    for _ in range(100):
        assert screen.feed(b"A" * 100_000) == b""
    assert len(screen._sequence) < 100
    assert screen.feed(b"\x07done") == b"done"


def test_a_long_parameter_is_dropped_and_takes_no_memory() -> None:
    screen = ScreenFilter()
    assert screen.feed(b"\x1b[" + b"1;" * 1_000_000) == b""
    assert len(screen._sequence) <= 64
    assert screen.feed(b"mok") == b"ok"


def test_random_bytes_never_let_an_escape_out_that_is_not_allowed() -> None:
    chance = random.Random(11)
    alphabet = b"\x1b\x1b\x1b[]P\\?;0123456789hlmncqtu\x07\x9b\x9d\xc2 a$>!"
    for _ in range(300):
        out = feed(bytes(chance.choice(alphabet) for _ in range(400)))
        assert feed(out) == out


def test_restoring_takes_back_just_what_was_set() -> None:
    screen = ScreenFilter()
    screen.feed(b"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?2004l\x1b[2;5r\x1b[4 q")
    back = screen.restore()
    for taken in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b7\x1b[r\x1b8", b"\x1b[0 q", b"\x1b[0m"):
        assert taken in back
    assert b"2004" not in back


def test_restoring_a_terminal_at_rest_moves_nothing() -> None:
    back = ScreenFilter().restore()
    assert b"1049" not in back
    assert b"\x1b[r" not in back


_FRAGMENTS = st.sampled_from([
    b"\x1b", b"\x1b]", b"\x1bP", b"\x1b[", b"\x1b[31m", b"\x1b[1", b"\x07", b"\x1b\\", b"\xc2", b"\x9b", b"\x90", b"\x8d",
    *(chr(code).encode() for code in range(0x80, 0xA0)), b"text", b"\r", b"\n", b"0;t", b"?25h", b"\x18",
])  # fmt: skip
_OURS = re.compile(r"\x1b(?:[78DEM=>]|[()][0AB]|\[[0-9;:? ]{0,64}[@-~])")


@settings(max_examples=500, deadline=None)
@given(st.lists(st.one_of(_FRAGMENTS, st.binary(max_size=3)), max_size=40).map(b"".join), st.integers(1, 9))
def test_no_escape_and_no_c1_of_a_guest_reaches_the_terminal(data: bytes, step: int) -> None:
    """Shells and replays, output of commands, and one line of a log, a name or a title."""
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    cleaner = LineCleaner(keep_sgr=True)
    lines = b"".join(map(cleaner.feed, chunks)) + cleaner.flush()
    drawn = _OURS.sub("", feed(*chunks).decode())
    coloured = (lines.decode(), clean(data, keep_sgr=True))
    for shown in (drawn, *(re.sub(r"\x1b\[[0-9;:]{0,64}m", "", text) for text in coloured)):
        assert not re.search("[\x1b\x7f-\x9f]", shown)
    assert not re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f]", clean(data) + strip_unsafe(data.decode("utf-8", "replace")))
