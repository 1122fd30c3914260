"""What a real terminal emulator shows of masked output: the value is on no row, however it was written there."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.secrets.test_visible_text import CODES, VALUE, streamed

from sandbox_console.secrets.redactor import MASK, Redactor
from sandbox_console.secrets.terminal_line import Line
from sandbox_console.secrets.visible_text import seen
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

COLUMNS = 200


def shows(data: bytes) -> str:
    """The rows of the terminal, one line each."""
    emulator = GhosttyEmulator(COLUMNS, 24)
    emulator.feed(data)
    emulator.refresh()
    return emulator.text()


BACK = [
    b"xyz\x1b[3D", b"x\x1b[D", b"x\x1b[0D", b"\x1b7xy\x1b8", b"\x1b[sxy\x1b[u", b"\x1b7\tx\x1b8", "\u6f22\b\b".encode(),
    "\u6f22\x1b[2D".encode(), "x\u0301\b".encode(), "\U0001f600\b\b".encode(), b"\xc3\xa4\xa4\b\b", b"\xff\b",
    b"\xf0\x9f\b", b"\xed\xa0\x80\b\b\b", b"\x1b[3a\x1b[3D", b"ab\x1b[2D\x1b[2P", b"\x1b[4h\x1b[4l", b"\x1b7\x1b[3Cx\x1b8",
    b"\x1b7\x1b[2Ixx\x1b8", b"\x1b7\r\x1b8", b"\x1b[2@", b"abc\x1b[3D\x1b[3X",
]  # fmt: skip
"""What leaves the cursor where it was, and nothing to see once more is written there."""


MALFORMED = [
    b"\x1b\x1b[31m", b"\x1b[3\x001m", b"\x1b[3\x071m", b"\x1b[31\x18", b"\x1b[1;\x1b[0m", b"\x1b]0;t\x1a", b"\x1b[1 2m",
    b"\x1b(\x1b[0m", b"\x1b\x00[31m", b"\x1b]0;t\x1b[0m", b"\x1b_a\x07b\x1b\\", b"x\x1b[\x08m", b"x\x1b[\x001D", b"\x1b\x18",
    "\U0001d173".encode(),
]  # fmt: skip
"""Codes that hold a control, are given up, or cut another one short: a terminal shows nothing of them either."""


def test_each_of_them_leaves_nothing_to_see() -> None:
    for code in BACK + MALFORMED:
        assert shows(b"hunter2-" + code + b"Tr0ub4dor&3").startswith(VALUE), code


@pytest.mark.parametrize("code", [*CODES, *BACK, *MALFORMED])
def test_no_code_brings_it_to_the_screen(code: bytes) -> None:
    data = VALUE[:4].encode() + code + VALUE[4:].encode() + b"\r\n"
    cuts = range(4, 6 + len(code))
    for shown in {Redactor([VALUE]).apply(data), *(streamed(data, [cut], Redactor([VALUE])) for cut in cuts)}:
        assert VALUE not in shows(shown), shown
        assert MASK in shown


def test_a_string_that_some_readers_end_with_bel_is_masked_for_them_too() -> None:
    data = b"hunter2-\x1bPa\x07Tr0ub4dor&3\x1b\\ more\n"
    for cut in range(len(data)):
        for shown in (Redactor([VALUE]).apply(data), streamed(data, [cut], Redactor([VALUE]))):
            assert MASK in shown
            assert b"dor&3" not in shown


def test_no_code_is_cut_in_two_by_what_waits() -> None:
    """The ``h`` may begin a value in base64; held back alone, it was written as a letter."""
    data = b"\x1b[4h" + b"".join(b"\x1b[1G" + one.encode() for one in reversed(VALUE)) + b"\x1b[4l"
    for cut in range(len(data)):
        assert VALUE not in shows(streamed(data, [cut], Redactor([VALUE])))


def later(at: int, junk: bytes) -> bytes:
    """Written with something within it, which is deleted then."""
    value = VALUE.encode()
    return b"\r" + value[:at] + junk + value[at:] + b"\x1b[%dG\x1b[%dP" % (at + 1, len(junk))


def between(at: int, size: int) -> bytes:
    """Written with a hole, into which the rest is put by making room, or by the mode that does."""
    value = VALUE.encode()
    short = b"\r" + value[:at] + value[at + size :] + b"\x1b[%dG" % (at + 1)
    rest = value[at : at + size]
    return short + (b"\x1b[%d@" % len(rest) + rest if size % 2 else b"\x1b[4h" + rest + b"\x1b[4l")


@pytest.mark.parametrize("junk", [b"x", b"xyz"])
@pytest.mark.parametrize("at", [1, 4, 12, 18])
def test_what_was_shown_already_is_not_brought_together_by_a_later_code(at: int, junk: bytes) -> None:
    data = b"\r   a longer line than the value is, before it" + later(at, junk)
    for cut in range(len(data)):
        assert VALUE not in shows(streamed(data, [cut], Redactor([VALUE])))


value = VALUE.encode()
steps = st.sampled_from([*BACK, *CODES, *MALFORMED])
broken = st.lists(
    st.one_of(st.just(b""), steps, st.lists(steps, max_size=3).map(b"".join)), min_size=19, max_size=19
).map(lambda codes: b"".join(bytes([one]) + code for one, code in zip(value, codes, strict=True)))
over = st.tuples(st.integers(1, 18), st.binary(max_size=18)).map(
    lambda pair: b"\r" + b" " * pair[0] + value[pair[0] :] + b"\r" + value[: pair[0]]
)
ways = st.one_of(
    broken,
    over,
    st.builds(later, st.integers(1, 18), st.sampled_from([b"x", b"xyz"])),
    st.builds(between, st.integers(1, 17), st.integers(1, 5)),
    st.sampled_from([b"plain ", b"\r\n", b"Tr0", b"hunter2-", *BACK]),
)
texts = st.lists(ways, max_size=5).map(b"".join)


@settings(max_examples=80, deadline=None)
@given(texts, st.lists(st.integers(0, 300), max_size=6))
@example(b"hunt\xc3\xa4\x08er2-Tr0ub4dor&3", [5])
@example(later(4, b"xyz"), [12, 30])
@example(between(4, 3), [20])
def test_nothing_that_is_written_brings_it_to_the_screen(data: bytes, cuts: list[int]) -> None:
    redactor = Redactor([VALUE])
    for shown in (redactor.apply(data), streamed(data, cuts, redactor)):
        assert VALUE not in shows(shown)
        assert VALUE.encode() not in seen(shown).data


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([b"abc", b"\r", b"de", b" ", b"123456789" * 9]), max_size=12).map(b"".join))
def test_the_short_way_of_what_only_goes_back_to_the_beginning_is_as_the_long_one(data: bytes) -> None:
    short, long = Line().write(data, 7), Line()
    for at in range(len(data)):
        long.write(data[at : at + 1], at + 7)
    assert (short.cells, short.places, short.column) == (long.cells, long.places, long.column)


@pytest.mark.parametrize("number", [*range(8), *range(14, 27), *range(28, 32), 127])
def test_no_control_hides_it_in_a_large_piece_either(number: int) -> None:
    data = b"a line of a log\n" * 1000 + b"hunter2-" + bytes([number]) + b"Tr0ub4dor&3\n" + b"and more\n" * 1000
    for shown in (Redactor([VALUE]).apply(data), streamed(data, [], Redactor([VALUE]))):
        assert MASK in shown
        assert b"Tr0ub4dor" not in shown


def test_a_character_in_two_pieces_is_whole_behind_the_redactor() -> None:
    data = "J\u00f6rg \u6f22 \U0001f600".encode()
    for cut in range(len(data) + 1):
        redactor = Redactor([VALUE])
        assert streamed(data, [cut], redactor) == data
