"""Values that are put together by moves to other rows: a real terminal emulator never shows one."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.secrets.test_visible_text import VALUE, streamed

from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.secrets.leaks import Scanner
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.screen import _KNOWN, Screen, roams
from sandbox_console.secrets.screen_rows import Rows
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

EXAMPLES = int(os.environ.get("SCREEN_EXAMPLES", "60"))
SIZES = [(80, 24), (20, 5), (200, 50)]
KNOWN = _KNOWN + b"\x1b[2J"
"""What is added when a program opens the alternate screen."""

ALTERNATE = b"\x1b[?1049h"
one, rest, size = b"hunter2-", b"Tr0ub4dor&3", len(b"hunter2-")

DRAWN = {
    "CUP": b"\x1b[3;1H" + one + b"\x1b[1;1Hx\x1b[3;9H" + rest,
    "HVP": b"\x1b[3;1f" + one + b"\x1b[1;1fx\x1b[3;9f" + rest,
    "backwards": b"\x1b[3;9H" + rest + b"\x1b[3;1H" + one,
    "VPA and CHA": b"\x1b[3d\x1b[1G" + one + b"\x1b[1dx\x1b[3d\x1b[9G" + rest,
    "up": b"\r" + one + b"\r\nx\x1b[1A\x1b[7C" + rest,
    "down and up": b"\r" + one + b"\x1b[2B\rx\x1b[2A\x1b[7C" + rest,
    "CPL": b"\r" + one + b"\r\nab\x1b[F\x1b[8C" + rest,
    "RI": b"\r" + one + b"\r\n\x1bM\x1b[8C" + rest,
    "a control within": b"\x1b[3;\x001H" + one + b"\x1b[1;1Hx\x1b[3;\x079H" + rest,
    "saved": b"\r" + one + b"\x1b7\r\nx\x1b8" + rest,
    "saved by CSI": b"\r" + one + b"\x1b[s\r\nx\x1b[u" + rest,
    "scrolled back": b"\x1b[2;1H" + one + b"\r\n\x1b[T\x1b[9G" + rest,
    "scrolled": b"\x1b[3;1H" + one + b"\x1b[S\x1b[2;9H" + rest,
    "inserted line": b"\x1b[1;1H" + one + b"\x1b[L\x1b[2;9H" + rest,
    "deleted line": b"\x1b[2;1H" + one + b"\x1b[1;1H\x1b[M\x1b[1;9H" + rest,
    "a region": b"\x1b[2;4r\x1b[4;1H" + one + b"\r\n\x1b[3;9H" + rest,
    "origin mode": b"\x1b[2;4r\x1b[?6h\x1b[1;1H" + one + b"\x1b[?6l\x1b[2;9H" + rest,
    "tabs": b"\x1b[3;1H" + one + b"\x1b[1;1H\x1b[3d\x1b[I" + rest,
    "REP": b"\x1b[3;1Hhunter2-Tr0ub4dor&\x1b[1;1H3\x1b[3;19H\x1b[b",
    "ICH": b"\x1b[3;1H" + rest + b"\x1b[1;1H\x1b[3;1H\x1b[8@" + one,
    "DCH": b"\x1b[3;1H" + one + b"xx" + rest + b"\x1b[1;1H\x1b[3;9H\x1b[2P",
    "IRM": b"\x1b[3;1H" + rest + b"\x1b[1;1H\x1b[3;1H\x1b[4h" + one + b"\x1b[4l",
    "one by one": b"".join(b"\x1b[2;%dH%c" % (at + 1, VALUE.encode()[at]) for at in (*range(0, 19, 2), *range(1, 19, 2))),
    "below the end": b"\x1b[999;1H" + one + b"\x1b[1;1H\x1b[998;9H" + rest,
    "another screen": b"\r" + one + ALTERNATE + b"x\x1b[?1049l" + rest,
    "the old other screen": b"\x1b[?47h\x1b[3;1H" + one + b"\x1b[?47lx\x1b[?47h\x1b[3;9H" + rest,
    "colours between": b"\x1b[3;1H\x1b[32m" + one + b"\x1b[0m\x1b[1;1H\x1b[3;9H\x1b[1m" + rest,
}  # fmt: skip


def shows(data: bytes, columns: int, rows: int) -> str:
    emulator = GhosttyEmulator(columns, rows)
    emulator.feed(data)
    emulator.refresh()
    return emulator.text()


def shown(data: bytes, cuts: list[int], terminal: tuple[int, int] | None) -> bytes:
    return streamed(data, cuts, Redactor([VALUE])) if terminal is None else in_shell(data, cuts, terminal)


def in_shell(data: bytes, cuts: list[int], terminal: tuple[int, int]) -> bytes:
    stream, parts, at = StreamRedactor(Redactor([VALUE]), terminal), [], 0
    for cut in sorted({*cuts, len(data)}):
        parts += [stream.feed(data[at:cut])]
        at = cut
    return b"".join([*parts, stream.flush()])


@pytest.mark.parametrize("name", DRAWN)
def test_each_of_them_draws_the_value_and_is_masked(name: str) -> None:
    data = DRAWN[name]
    assert VALUE in shows(data, 80, 24), "the terminal shows it, or this is no attack"
    assert roams(data)
    for alternate in (b"", ALTERNATE + b"\x1b[2;1H" if name != "another screen" else b""):
        whole = alternate + data
        for cut in range(0, len(whole), 3):
            for result in (shown(whole, [cut], None), shown(whole, [cut], (80, 24))):
                assert VALUE not in shows(result, 80, 24), result
    assert VALUE not in shows(Redactor([VALUE]).apply(data), 80, 24)


DISPUTED = {
    "margins": b"\x1b[?69h\x1b[5;40s\r" + one + b"\x1b[H\x1b[?69l\x1b[1;13H" + rest,
    "RI as C1": b"\r" + one + b"\r\n\xc2\x8d\x1b[8C" + rest,
    "CSI as C1": b"\xc2\x9b3;1H" + one + b"\xc2\x9b1;1Hx\xc2\x9b3;9H" + rest,
    "erased only by some": b"\x1b[3;1H" + one + b"\xc2\x9b2J\x1b[3;9H" + rest,
    "ended by BEL for some": b"\x1b[3;1H" + one + b"\x1b[1;1H\x1b[3;9H\x1bPa\x07" + rest + b"\x1b\\",
    "begun for some": b"\x1b[3;1H" + one + b"\x1b[1;1H\x1b[3;9H\x1bPa\x07\x1b\\" + rest,
}
"""What only some terminals obey."""


@pytest.mark.parametrize("name", DISPUTED)
def test_what_terminals_disagree_on_is_made_plain(name: str) -> None:
    for terminal in (None, (80, 24)):
        for before in (b"", ALTERNATE):
            result = shown(before + DISPUTED[name], [], terminal)
            assert VALUE not in shows(result, 80, 24)
            assert b"\xc2" not in result
            assert b"\x07" not in result


@pytest.mark.parametrize("name", [name for name, data in DRAWN.items() if b"\0" not in data])  # NUL: it is no text
def test_a_scan_for_leaks_names_it(name: str) -> None:
    hits = list(Scanner([ResolvedSecret("TOKEN", VALUE, "env")], b"key").scan([b"one\n", DRAWN[name]]))
    assert [hit.secret for hit in hits][:1] == ["TOKEN"]


def test_stars_keep_the_place_of_what_follows() -> None:
    data = b"\x1b[3;1H" + one + b"\x1b[1;1Hx\x1b[3;9H" + rest + b" more"
    assert shows(Redactor([VALUE]).apply(data), 80, 24).split("\n")[2].startswith("hunter2-*********** more")


def test_a_screen_without_a_value_passes_byte_for_byte() -> None:
    data = ALTERNATE + b"\x1b[H\x1b[2J" + b"".join(b"\x1b[%d;1Hrow %d: abc\x1b[K" % (row, row) for row in range(1, 24))
    data += b"\x1b[5;10r\x1b[5;1H\x1b[M\x1b[r\x1b[?25l\x1b[24;1H\xe6\xbc\xa2\xc3\xa4\x1b[3b" + b"\x1b[?1049lbye\r\n"
    for terminal in (None, (80, 24)):
        passed = shown(data, [7, 40, 41], terminal)
        assert passed.replace(KNOWN, b"") == data


def test_no_size_that_changes_meanwhile_draws_it() -> None:
    for at, (columns, rows) in enumerate([(80, 12), (40, 24), (120, 40)]):
        stream, emulator = StreamRedactor(Redactor([VALUE])), GhosttyEmulator(80, 24)
        stream.resize(80, 24)
        emulator.feed(stream.feed(ALTERNATE + b"\x1b[%d;1H" % (23 - at) + one))
        stream.resize(columns, rows)
        emulator.resize(columns, rows)
        emulator.feed(stream.feed(b"".join(b"\x1b[%d;9H" % row + rest for row in range(1, 41))))
        emulator.refresh()
        assert VALUE not in emulator.text()


def test_a_long_log_after_one_move_is_masked_the_fast_way_again() -> None:
    stream = StreamRedactor(Redactor([VALUE]))
    stream.feed(b"a\n\x1b[A\x1b[Cb\n")
    assert stream._screen is not None
    for _ in range(5):
        stream.feed(b"a line of the log\n" * 100)
    assert stream._screen is None


codes = st.sampled_from([
    b"\x1b[A", b"\x1b[2B", b"\x1b[3C", b"\x1b[2D", b"\x1b[E", b"\x1b[F", b"\x1b[3G", b"\x1b[9G", b"\x1b[H", b"\x1b[2;3H",
    b"\x1b[4;9f", b"\x1b[d", b"\x1b[4d", b"\x1b[99;99H", b"\x1b[L", b"\x1b[2M", b"\x1b[P", b"\x1b[3@", b"\x1b[4X", b"\x1b[K",
    b"\x1b[1K", b"\x1b[2K", b"\x1b[J", b"\x1b[1J", b"\x1b[2J", b"\x1b[S", b"\x1b[2T", b"\x1b[2;4r", b"\x1b[r", b"\x1bM",
    b"\x1bD", b"\x1bE", b"\x1b7", b"\x1b8", b"\x1b[s", b"\x1b[u", b"\x1b[4h", b"\x1b[4l", b"\x1b[?7l", b"\x1b[?7h",
    b"\x1b[?6h", b"\x1b[?6l", b"\r", b"\n", b"\r\n", b"\x08", b"\t", b"\x1b[I", b"\x1b[Z", b"\x1b[2b", b"\x0b", b"\x1b[1m",
    "\u6f22".encode(), "\xe4".encode(), b"x", b"word", b"a long run of text that wraps", b"  ",
])  # fmt: skip
programs = st.lists(codes, max_size=40).map(b"".join)


class Anything:
    """No values."""

    def cells(self):
        return ()

    def hits(self, data):
        return ()


def text_of(rows: Rows) -> list[str]:
    return [b"".join(row).decode().rstrip() for row in rows._rows]


@settings(max_examples=EXAMPLES, deadline=None)
@given(programs, st.sampled_from(SIZES))
def test_rows_are_those_of_a_real_terminal(data: bytes, terminal: tuple[int, int]) -> None:
    screen = Screen(Anything(), terminal)
    real = shows(screen.mask(ALTERNATE + data), *terminal).split("\n")
    real += [""] * (terminal[1] - len(real))
    assert text_of(screen._alternate) == [row.rstrip() for row in real], data


pieces = st.sampled_from([one, rest, b"hunter2-Tr0u", b"b4dor&3", b"4dor&3", b"h", b"-Tr0ub", VALUE.encode()])
attacks = st.lists(st.one_of(codes, pieces), max_size=30).map(b"".join)


@settings(max_examples=EXAMPLES, deadline=None)
@given(attacks, st.lists(st.integers(0, 200), max_size=5), st.sampled_from(SIZES), st.booleans())
@example(b"\x1b[99;1Hhunter2-\x1b[H\x1b[98;9HTr0ub4dor&3", [], (20, 5), False)
def test_no_sequence_of_codes_draws_it(
    data: bytes, cuts: list[int], terminal: tuple[int, int], alternate: bool
) -> None:
    data = ALTERNATE + data if alternate else data.replace(b"\n", b"\r\n")
    for result in (shown(data, cuts, terminal), *([] if alternate else [shown(data, cuts, None)])):
        for row in shows(result, *terminal).split("\n"):
            assert VALUE not in row, result
