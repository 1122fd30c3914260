"""A value that the rows of a terminal put together: its width, its edge, its tab stops, and codes that change them."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.secrets.test_screen import SIZES, in_shell, one, pieces, rest, shows
from tests.secrets.test_visible_text import VALUE

from sandbox_console.cli.terminal_filter import ScreenFilter
from sandbox_console.recording.cast import plain
from sandbox_console.secrets import terminal_line
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.secrets.terminal_line import Line
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

EXAMPLES = int(os.environ.get("SCREEN_EXAMPLES", "40"))
gap, full = b" " * len(one), b"x" * 80
WRITTEN = {
    "wraps": full + gap + rest + b"\r" + one,
    "wraps, with a deletion": full + one + b"xyz" + rest + b"\r\x1b[8C\x1b[3P",
    "wraps, with an insertion": full + rest + b"\r\x1b[8@" + one,
    "wraps, with a mode": full + rest + b"\r\x1b[4h" + one,
    "back to the edge": full + b"x\b\b\b" + gap + rest + b"\r" + one,
    "wraps twice, in pieces": full * 2 + b"\r\n" + full + gap + rest + b"\x1b[G" + one,
    "tabs stop at the edge": b"\t" * 20 + b"\b" * 11 + rest + b"\x1b[19D" + one + b"\r\n",
    "tabs over the edge": b"x" * 60 + VALUE[:-1].encode() + b"z" + b"\t3",
    "goes on at the edge": b"\x1b[999C\x1b[11D" + rest + b"\x1b[19D" + one,
    "does not wrap": b"\x1b[?7l" + b"x" * 61 + VALUE[:-1].encode() + b"uvw3",
    "a line feed alone": b"x" * 8 + b"\n" + rest + b"\r" + one,
    "a line feed in a code": b"\x1b[8\nC" + rest + b"\r" + one,
    "a vertical tab": b"x" * 8 + b"\x0b" + rest + b"\r" + one,
    "NEL": b"x" * 8 + b"\x1bE" + gap + rest + b"\r" + one,
    "IND": b"x" * 8 + b"\x1bD" + rest + b"\r" + one,
    "a stop": b"\x1b[3g\x1b[6G\x1bH\r\t" + VALUE[5:].encode() + b"\r" + VALUE[:5].encode(),
    "no stops": b"\x1b[3g\t" + b"\x1b[11D" + rest + b"\x1b[19D" + one,
    "another width": b"\x1b[?40h\x1b[?3h" + full + gap + rest + b"\r" + one,
    "a mode of another line": b"\x1b[4h\r\n" + rest + b"\r" + one,
    "newline mode": b"\x1b[20hxxxx\n" + gap + rest + b"\r" + one,
    "around the left edge": b"\x1b[?45h" + full[:69] + one + b"xxx\r\n" + b"\b" * 3 + rest,
    "zeros": b"\x1b[000008C" + rest + b"\r" + one,
    "a long code": b"\x1b[" + b"0" * 70 + b"8C" + rest + b"\r" + one,
    "HPB": one + b"xyz\x1b[3j" + rest,
    "REP of another place": b"\x1b[30G3\r" + VALUE[:-1].encode() + b"\x1b[30G3\x1b[19G\x1b[b",
    "reset": b"\x1b[4hx\x1bc" + gap + rest + b"\r" + one,
    "aligned": b"xx\x1b#8" + b"\x1b[8C" + rest + b"\r" + one,
    "wide at the edge": b"x" * 79 + "\u6f22".encode() + b"\b\b" + gap + rest + b"\r" + one,
    "repeated over the edge": b"x" + b"\x1b[79b" + gap + rest + b"\r" + one,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_none_of_them_brings_it_to_a_terminal(name: str) -> None:
    data = WRITTEN[name]
    for result in [in_shell(data, cuts, (80, 24)) for cuts in ([], [*range(len(data))], [len(data) // 2])]:
        assert VALUE not in shows(result, 80, 24), "in the app"
        assert VALUE not in shows(ScreenFilter().feed(result), 80, 24), "at the terminal of the command line"
    recorded = "".join(Redactor([VALUE]).across([data[:9].decode(), data[9:].decode()], [(80, 24)] * 2)).encode()
    assert VALUE not in shows(recorded, 80, 24), "the recording of a command"


def test_the_filter_of_the_command_line_reads_codes_as_the_mask_does() -> None:
    for code in (b"\x1b#8", b"\x1b%8", b"\x1b 8", b"\x1b(8", b"\x1b#!8", b"\xc2\x9b8m", b"\x1b*8"):
        shown = in_shell(b"abcdefg" + code + b"hijk", [9], (80, 24))
        assert ScreenFilter().feed(shown).replace(b"\x1b[8m", b"") == b"abcdefghijk", code


def test_a_pause_within_a_code_does_not_make_it_two() -> None:
    for data in (b"\x1b[8C" + rest + b"\r" + one, "\u6f22".encode() + rest + b"\r" + one):
        stream, result = StreamRedactor(Redactor([VALUE]), (80, 24)), b""
        for at in range(len(data)):
            result += stream.feed(data[at : at + 1]) + stream.flush()
        assert VALUE not in shows(result, 80, 24)


def test_no_new_width_brings_it_to_a_terminal() -> None:
    for columns in (60, 100):
        for at in range(70, 90):
            stream, emulator = StreamRedactor(Redactor([VALUE]), (80, 24)), GhosttyEmulator(80, 24)
            emulator.feed(stream.feed(b"x" * at + gap + rest))
            stream.resize(columns, 24)
            emulator.resize(columns, 24)
            emulator.feed(stream.feed(b"\r" + one))
            emulator.refresh()
            assert VALUE not in emulator.text(), (columns, at)


@pytest.mark.parametrize("code", [b"ZZ\b\b\x1b[2C", "\u6f22\b".encode(), "Z\u200b\b\b".encode(), "\u00e4\b".encode()])
def test_the_text_of_a_recording_does_not_contain_it(code: bytes) -> None:
    """There, a backspace removes a character, however wide it is, and other codes do nothing."""
    data = "line\r\n" + (one + code + rest).decode() + "\r\n"
    recorded = "".join(Redactor([VALUE]).across([data[:14], data[14:]], [(80, 24)] * 2))
    assert VALUE not in [plain(line) for line in recorded.split("\n")]
    assert VALUE in [plain(line) for line in data.split("\n")], "it would, or this is no attack"


def test_usual_output_passes_byte_for_byte() -> None:
    """Long lines, progress bars, readline's way around the edge, tabs, colours, character sets, a screen and a title."""
    data = full * 3 + b"\r\n" + b"".join(b"\r%3d%% [%s]" % (n, b"#" * n) for n in range(70)) + b"\r\n"
    data += b"$ " + b"y" * 78 + b" \r" + b"more\b \b\x1b[K\r\n" + b"a\tb\tc\r\n" * 20 + b"\x1b[1;31mred\x1b[m\x1b(B\r\n"
    data += (
        b"\x1b]0;title\x07\x1b[?2004h\x1b[?1h\x1b=\x1b(0lqk\x1b(B\x1b[6n\x1b[>c\x1b[2 q\x1b[?25l\x1b[18t\x1b[3Cx\x1b[2b"
    )
    for cuts in ([], [*range(0, len(data), 7)]):
        assert in_shell(data, cuts, (80, 24)) == data


def test_a_long_line_costs_a_fixed_amount_for_each_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in cells that are written: twice the line writes twice as many."""
    written = [0]
    put = Line._put_within

    def counting(self: Line, cells: list[bytes], places: object) -> None:
        written[0] += len(cells) + 1
        put(self, cells, places)

    monkeypatch.setattr(terminal_line.Line, "_put_within", counting)
    counts = []
    for size in (1 << 14, 1 << 15):
        written[0] = 0
        in_shell(b"\x1b[?7h" + b"x" * size + b"\tab\r" + b"y" * size, [*range(0, 2 * size, 1024)], (80, 24))
        counts.append(written[0])
    assert counts[1] <= 2.2 * counts[0]
    assert counts[1] <= 8 << 16


codes = st.sampled_from([
    b"\r", b"\n", b"\r\n", b"\b", b"\t", b"\x0b", b"\x1bD", b"\x1bE", b"\x1bH", b"\x1b[g", b"\x1b[3g", b"\x1b[3C", b"\x1b[2D",
    b"\x1b[9G", b"\x1b[99G", b"\x1b[3P", b"\x1b[8@", b"\x1b[4X", b"\x1b[K", b"\x1b[4h", b"\x1b[4l", b"\x1b[?7l", b"\x1b[?7h",
    b"\x1b[I", b"\x1b[Z", b"\x1b[2b", b"\x1b[3j", b"\x1b[s", b"\x1b[u", b"\x1b7", b"\x1b8", b"\x1bc", b"\x1b[!p", b"\x1b[20h",
    b"\x1b[?45h", b"\x1b[?3h", b"\x1b[?40h", b"\x1b[m", "\u6f22".encode(), b"x", b"word", b"a long run of text that wraps",
    b"        ", b" " * 12,
])  # fmt: skip
attacks = st.lists(st.one_of(codes, pieces, st.just(VALUE[:-1].encode())), max_size=25).map(b"".join)


@settings(max_examples=EXAMPLES, deadline=None)
@given(attacks, st.lists(st.integers(0, 200), max_size=4), st.sampled_from(SIZES))
@example(b"a long run of text that wraps" + rest + b"\x1b[9G" + one, [], (20, 5))
def test_no_text_in_rows_brings_it_to_a_terminal(data: bytes, cuts: list[int], terminal: tuple[int, int]) -> None:
    result = in_shell(data, cuts, terminal)
    for reader in (result, ScreenFilter().feed(result)):
        for row in shows(reader, *terminal).split("\n"):
            assert VALUE not in row, result
