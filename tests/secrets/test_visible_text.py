"""A value that is broken up by what a reader does not see is masked all the same."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.secrets import visible_text
from sandbox_console.secrets.leaks import Scanner
from sandbox_console.secrets.redactor import MASK, Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.secrets.terminal_line import Line
from sandbox_console.secrets.visible_text import plain, seen

VALUE = "hunter2-Tr0ub4dor&3"
CODES = [
    b"\x1b[0m", b"\x1b[1;31m", b"\x1b[38;2;1;2;3m", b"\x1b[K", b"\x1b[2K", b"\x1b[?25l", b"\x1b(B", b"\x1b7", b"\x1b=",
    b"\x1b]0;a title\x07", b"\x1b]8;;http://x/\x1b\\", b"\x1bP1$r0m\x1b\\", b"\0", b"\x07", b"\x0e", b"\x7f",
    "\u200b".encode(), "\u200d".encode(), "\u2060".encode(), "\ufeff".encode(), "\u00ad".encode(), "\u202e".encode(),
    "\ufe0f".encode(), "\U000e0061".encode(), b"\xc2\x9b31m", b"x\b", b"ab\b\b", b"\x1b[1D\x1b[1C", "\u00e4\b".encode(),
]  # fmt: skip


def read(data: bytes) -> bytes:
    """What a terminal shows of it: written apart from the code that is tested, for the codes above alone."""
    shown = []
    for line in data.decode("utf-8", "replace").split("\n"):
        cells, column, at = [], 0, 0
        while at < len(line):
            letter = line[at]
            at += 1
            if letter == "\x1b":
                at = behind(line, at)
                if line[at - 1] in "CD" and line[at - 3 : at - 1] == "[1":
                    column = max(0, column + (1 if line[at - 1] == "C" else -1))
            elif letter == "\x9b":
                at = behind(line, at, "[")
            elif letter == "\b":
                column = max(0, column - 1)
            elif letter == "\r":
                column = 0
            elif letter >= " " and letter not in "\x7f\u200b\u200d\u2060\ufeff\u00ad\u202e\ufe0f\U000e0061":
                cells += [" "] * (column - len(cells))
                cells[column : column + 1] = [letter]
                column += 1
        shown.append("".join(cells))
    return "\n".join(shown).encode()


def behind(line: str, at: int, kind: str = "") -> int:
    """Where the code ends that begins at ``at``."""
    if not kind:
        kind, at = line[at : at + 1], at + 1
    if kind == "[":
        while at < len(line) and not "@" <= line[at] <= "~":
            at += 1
        return at + 1
    if kind and kind in "]P":
        while at < len(line) and line[at] not in "\x07\\":
            at += 1
        return at + 1
    return at + 1 if kind == "(" else at


@pytest.mark.parametrize("code", CODES)
def test_a_code_in_the_middle_hides_nothing(code):
    value = VALUE.encode()
    for at in range(1, len(value)):
        data = b"a " + value[:at] + code + value[at:] + b" z\n"
        assert VALUE in read(data).decode()
        for shown in (Redactor([VALUE]).apply(data), streamed(data, [len(b"a ") + at], Redactor([VALUE]))):
            assert VALUE.encode() not in read(shown)
            assert shown.startswith(b"a " + MASK)
            assert shown.endswith(b" z\n")


def streamed(data: bytes, cuts: list[int], redactor: Redactor) -> bytes:
    stream, shown, at = StreamRedactor(redactor), b"", 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        shown += stream.feed(data[at:cut])
        at = cut
    return shown + stream.flush()


codes = st.sampled_from(CODES)
broken = st.lists(
    st.one_of(st.just(b""), codes, st.lists(codes, max_size=4).map(b"".join)), min_size=19, max_size=19
).map(lambda between: b"".join(bytes([one]) + code for one, code in zip(VALUE.encode(), between, strict=True)))
overprinted = st.tuples(st.binary(max_size=19), st.just(b"\r")).map(
    lambda pair: b"\n" + bytes(32 + one % 95 for one in pair[0]) + pair[1] + VALUE.encode()
)
backwards = st.integers(1, 18).map(
    lambda at: b"\n" + b" " * at + VALUE.encode()[at:] + b"\r" + VALUE.encode()[:at] + b"\n"
)
noise = st.one_of(st.sampled_from([b"hunter2-", b"plain", b" ", b"\n", b"\r\n", b"\xff", b"Tr0"]), codes)
texts = st.lists(st.one_of(noise, broken, overprinted, backwards), max_size=6).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(texts, st.lists(st.integers(0, 400), max_size=8))
@example(b"hunter2-\x1b[31mTr0ub4dor&3", [3, 9, 10, 12])
@example(b"\n        Tr0ub4dor&3\rhunter2-\n", [21])
def test_no_split_and_no_code_makes_it_readable(data, cuts):
    redactor = Redactor([VALUE])
    for shown in (redactor.apply(data), streamed(data, cuts, redactor)):
        assert VALUE.encode() not in read(shown)
        assert VALUE.encode() not in seen(shown).data
        assert VALUE.encode() not in shown


@settings(max_examples=400, deadline=None)
@given(st.lists(noise, max_size=12).map(b"".join), st.lists(st.integers(0, 200), max_size=8))
def test_what_shows_no_value_passes_byte_for_byte(data, cuts):
    redactor = Redactor([VALUE])
    if VALUE.encode() not in read(data) and VALUE.encode() not in seen(data).data:
        assert redactor.apply(data) == data
        assert streamed(data, cuts, redactor) == data


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters=["\x8d", "\x9b"]), max_size=20)),
    st.integers(0, 99),
)
def test_any_text_without_it_passes(parts, cut):
    data = "".join(parts).encode()
    assert streamed(data, [cut], Redactor([VALUE])) == data


def test_the_colours_that_are_set_inside_stay():
    data = b"\x1b[31mhunter2-\x1b[0mTr0ub4dor&3 after"
    assert Redactor([VALUE]).apply(data) == b"\x1b[31m" + MASK + b"\x1b[0m after"


def test_codes_without_end_hold_nothing_back_for_ever():
    stream, shown = StreamRedactor(Redactor([VALUE])), b"".join([b""])
    shown += stream.feed(b"hunter2-")
    for _ in range(40):
        shown += stream.feed(b"\x1b[m" * 1000)
    assert len(stream._held) < 80_000
    assert VALUE.encode() not in read(shown + stream.feed(b"Tr0ub4dor&3") + stream.flush())


def test_events_of_a_recording_are_masked_as_they_are_read():
    parts = ["$ hun", "\x1b[1mter2-\u200b", "Tr0u", "x\bb4dor", "&3\r\n", "done"]
    assert Redactor([VALUE]).across(parts) == ["$ [secret]", "", "", "", "\r\n", "done"]


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("after", range(6))
def test_base64_shows_no_bit_of_a_value(encode, before, after):
    """What is left to see decides nothing of the value: two values give the same."""
    letters = random.Random(before * 6 + after)
    head, tail = letters.randbytes(before), letters.randbytes(after)
    shown = {
        Redactor([value]).apply(b"<" + encode(head + value.encode() + tail) + b">")
        for value in ("hunter2-" + letters.choice("abc") * size + "\u00e4\u00ff?~" for size in (8, 11, 14, 17))
    }
    cut = {one.split(MASK)[0] for one in shown}, {one.split(MASK)[1].rstrip(b"=>") for one in shown}
    assert all(one.count(MASK) == 1 for one in shown)
    assert len(cut[0]) == 1
    assert max(map(len, cut[1])) * 6 <= after * 8 + 4


def test_base64_in_pieces_is_as_the_whole():
    data = base64.b64encode(b"xy" + VALUE.encode() + b"zz")
    for cut in range(len(data)):
        redactor = Redactor([VALUE])
        assert streamed(data, [cut], redactor) == redactor.apply(data)


def test_a_scan_for_leaks_sees_what_a_reader_sees():
    scanner = Scanner([ResolvedSecret("TOKEN", VALUE, "env")], b"key")
    for code in CODES:
        data = b"one\ntwo\n" + VALUE[:6].encode() + code + VALUE[6:].encode() + b"\n"
        [hit] = scanner.scan([data[:11], data[11:]])
        assert (hit.secret, hit.line) == ("TOKEN", 3), code


@pytest.mark.parametrize(
    "data", [b"", b"a\n\tb\r\n", "J\u00f6rg \u201cquoted\u201d \u2500\u2502 \u6f22\u5b57\n".encode()]
)
def test_usual_text_takes_the_fast_way(data):
    assert plain(data)


C1 = {
    name: chr(code).encode() for name, code in {"DCS": 0x90, "SOS": 0x98, "OSC": 0x9D, "PM": 0x9E, "APC": 0x9F}.items()
}
ST, CSI_8 = b"\xc2\x9c", b"\xc2\x9b"


@pytest.mark.parametrize("size", [3, 64, 4096])
@pytest.mark.parametrize("code", [
    *(begin + b"text" + ST for begin in C1.values()), *(begin + b"text" + b"\x1b\\" for begin in C1.values()),
    C1["OSC"] + b"0;t\x07", C1["DCS"] + b"te\xc2\x85xt" + ST, b"\xc2\x80" + C1["OSC"] + b"text" + ST,
    b"\x1b]0;text" + ST, b"\x1bPtext" + ST, b"\x1bPtext" + CSI_8 + b"m", b"\x1b[1\xc2\x8d", b"\x1b[1\xc2\x80",
    CSI_8 + b"1\xc2\x80", CSI_8 + b"31" + CSI_8 + b"1m", b"\x1b]" + b"t" * 5000 + b"\x07", b"\x1bP" + b"t" * 5000 + b"\x1b\\",
    C1["APC"] + b"t" * 5000 + ST, b"\x1b[" + b"1;" * 2500 + b"m", b"\x1b]x" * 40 + b"\x07", (C1["PM"] + b"x") * 40 + ST,
])  # fmt: skip
def test_a_control_string_of_either_kind_hides_no_value(code, size):
    """Where some terminal shows nothing of the code, each half of the value is masked."""
    head, tail = VALUE[:8].encode(), VALUE[8:].encode()
    data = b"a " + head + code + tail + b" b\n"
    for shown in (Redactor([VALUE]).apply(data), streamed(data, [*range(0, len(data), size)], Redactor([VALUE]))):
        assert head not in shown
        assert tail not in shown


@pytest.mark.parametrize("unit", [
    b"\x1b]", b"\x1bP", b"\x1b", b"\x1b]a", C1["OSC"], C1["OSC"] + b"a", CSI_8, b"\xc2\x9d\x1b[1", b"\x1b[1", b"\x1bPa\x07",
])  # fmt: skip
def test_a_flood_of_codes_that_never_end_costs_a_fixed_amount_for_each_byte(unit, monkeypatch):
    """Counted in places that are tried, as clocks lie: twice the flood tries twice as many, and not four times."""
    tried = [0]
    match, search = visible_text._BEGUN.match, visible_text._BEGUN.search

    class Counting:
        def search(self, data, start, end):
            tried[0] += end - start
            return search(data, start, end)

        def match(self, *where):
            tried[0] += 1
            return match(*where)

    monkeypatch.setattr(visible_text, "_BEGUN", Counting())
    counts = []
    for size in (1 << 16, 1 << 17):
        tried[0] = 0
        data = unit * (size // len(unit))
        streamed(data, [*range(0, len(data), 8192)], Redactor([VALUE]))
        counts.append(tried[0])
    assert counts[1] <= 2.2 * counts[0] + 100
    assert counts[1] <= 4 << 17


def test_text_of_an_image_in_a_string_passes_byte_for_byte():
    data = b"\x1b]1337;File=inline=1:" + base64.b64encode(random.Random(1).randbytes(200_000)) + b"\x07 after\n"
    assert streamed(data, [*range(0, len(data), 4096)], Redactor([VALUE])) == data


LONG = 70 * 1024
WAYS = {
    "a title": b"\x1b]0;" + b"t" * LONG + b"\x07",
    "an image": b"\x1bPq" + b"~" * 3 * LONG + b"\x1b\\",
    "of DEC": C1["DCS"] + b"t" * LONG + ST,
    "two": b"\x1bPq" + b"~" * LONG + b"\x1b\\" + b"\x1b]0;" + b"t" * LONG + b"\x07",
    "colours": b"\x1b[31m" * (LONG // 4),
    "one colour": b"\x1b[" + b"0;" * LONG + b"m",
    "zero-width": "\u200b".encode() * LONG,
}


@pytest.mark.parametrize("size", [1000, 4096, 1 << 16, 1 << 20])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [1, 8, len(VALUE) - 1])
def test_no_length_of_codes_shows_the_rest_of_a_value(way, size, at):
    """After 64 KiB the beginning was given up as stars, and nearly all of the value followed."""
    head, tail = VALUE[:at].encode(), VALUE[at:].encode()
    data = b"before " + head + WAYS[way] + tail + b" after\n"
    shown = streamed(data, [*range(0, len(data), size)], Redactor([VALUE]))
    assert shown.startswith(b"before ")
    assert shown.endswith(b" after\n")
    assert len(tail) < 2 or tail not in shown
    assert len(head) < 2 or head not in shown
    assert MASK in shown


@pytest.mark.parametrize("size", [1000, 4096, 1 << 16])
def test_a_value_within_a_long_string_is_masked_wherever_it_is_cut(size):
    for offset in range(0, 200, 7):
        data = b"\x1b]0;" + b"t" * (LONG - offset) + VALUE.encode() + b"t" * LONG + b"\x07ok\n"
        assert VALUE.encode() not in streamed(data, [*range(0, len(data), size)], Redactor([VALUE]))


def test_what_only_begins_like_a_value_stays_beside_a_long_string():
    data = b"a h" + WAYS["a title"] + b"ere\n"
    shown = streamed(data, [*range(0, len(data), 4096)], Redactor([VALUE]))
    assert shown.startswith(b"a h\x1b]0;ttt")
    assert shown.endswith(b"t\x07ere\n")
    assert b"[secret]" not in shown


class Counting(Redactor):
    """Counts the bytes that it looks at."""

    looked = 0

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        self.looked += len(data)
        return super().split(data)

    def split_seen(self, data: bytes, line: Line) -> tuple[bytes, bytes]:
        self.looked += len(data)
        return super().split_seen(data, line)


FLOODS = [
    b"\x1b]0;" + b"x" * 40_000 + b"\x07", b"\x1bP" + b"\x07" * 40_000 + b"\x1b\\", b"\x1b[" + b"1;" * 20_000 + b"m",
    "\u200b".encode() * 12_000, b"\0" * 40_000, b"\x1b" * 4_000 + b"\x18", "\u009f".encode() + b"x" * 40_000 + "\u009c".encode(),
]  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS, ids=lambda one: repr(one[:6]))
def test_codes_that_come_byte_by_byte_are_not_read_again_for_each(flood: bytes) -> None:
    """200 KB of a control string took minutes, which held up the console."""
    redactor = Counting([VALUE])
    data = VALUE[:4].encode() + flood + VALUE[4:].encode() + b" and more\n"
    mask = StreamRedactor(redactor)
    shown = b"".join(mask.feed(data[at : at + 1]) for at in range(len(data))) + mask.flush()
    assert redactor.looked < 256 * 1024 + 32 * len(data)
    assert MASK in shown
    assert VALUE[4:].encode() not in shown
    assert shown.endswith(b" and more\n")
