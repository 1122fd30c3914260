"""The line store: what goes in comes out, by stream, in pieces, past its cap."""

from __future__ import annotations

import random

import pytest

from sandbox_console.errors import UsageError
from sandbox_console.logs.index import LineIndex
from sandbox_console.logs.pattern import compile_pattern
from sandbox_console.logs.store import CHUNK_BYTES, GAP, LINE_BYTES, STDERR, STDOUT, LineStore
from sandbox_console.model.log import LogGap, LogRecord, Stream


def out(data, at_ns=0):
    return LogRecord(at_ns, Stream.STDOUT, data)


def err(data, at_ns=0):
    return LogRecord(at_ns, Stream.STDERR, data)


def lines(store):
    return [store.line(number).data for number in range(store.first, store.end)]


def test_lines_keep_their_bytes_time_and_stream():
    store = LineStore()
    store.append([out(b"a\n", 5), err(b"\xff\x1b[31mb\r\n", 6)])
    first, second = store.line(0), store.line(1)
    assert (first.data, first.at_ns, first.kind) == (b"a\n", 5, STDOUT)
    assert (second.data, second.at_ns, second.kind) == (b"\xff\x1b[31mb\r\n", 6, STDERR)
    with pytest.raises(IndexError):
        store.line(2)


def test_parts_are_joined_within_their_stream():
    store = LineStore()
    store.append([out(b"pass", 1), err(b"oops\n", 2), out(b"wo", 3)])
    assert lines(store) == [b"oops\n"]
    assert [(part.number, part.data, part.partial) for part in store.partials()] == [(1, b"passwo", True)]
    store.append([out(b"rd\n", 4), out(b"next\n", 5)])
    assert lines(store) == [b"oops\n", b"password\n", b"next\n"]
    assert store.line(1).at_ns == 1, "a line has the time of its first part"
    assert store.partials() == []


def test_a_record_of_several_lines_is_split():
    store = LineStore()
    store.append([out(b"a\nb\rc\nd"), out(b"\n"), out(b"")])
    assert lines(store) == [b"a\n", b"b\rc\n", b"d\n"]


def test_a_line_without_end_is_stored_in_pieces():
    store = LineStore()
    for _ in range(3):
        store.append([out(b"x" * (LINE_BYTES // 2 + 1))])
    store.append([out(b"\n")])
    assert b"".join(lines(store)) == b"x" * 3 * (LINE_BYTES // 2 + 1) + b"\n"
    assert all(len(line) <= LINE_BYTES + LINE_BYTES // 2 + 1 for line in lines(store))
    big = LineStore()
    big.append([out(b"y" * (5 * LINE_BYTES) + b"\n")])
    assert len(big) == 6
    assert max(map(len, lines(big))) == LINE_BYTES


def test_gaps_are_lines():
    store = LineStore()
    store.append([out(b"a\n"), LogGap(7, "slow viewer", 1200), LogGap(8, "restart"), LogGap(9, "x", 1)])
    assert lines(store)[1:] == [
        b"[1,200 lines lost: slow viewer]\n",
        b"[output lost: restart]\n",
        b"[1 line lost: x]\n",
    ]
    assert store.line(1).kind == GAP


def test_the_oldest_go_by_chunks_and_numbers_stay():
    store = LineStore(cap_bytes=2 * CHUNK_BYTES)
    expected = [b"%07d " % at + b"x" * 91 + b"\n" for at in range(40_000)]
    for at in range(0, len(expected), 500):
        store.append([out(line, at) for line in expected[at : at + 500]])
        assert store.size_bytes <= 2 * CHUNK_BYTES
    assert store.end == 40_000
    assert 0 < store.first <= 40_000 - CHUNK_BYTES // 100
    assert lines(store) == expected[store.first :]
    with pytest.raises(IndexError):
        store.line(store.first - 1)


def test_random_writes_come_out_whole():
    rng = random.Random(3)
    for _ in range(30):
        store, written = LineStore(), {Stream.STDOUT: b"", Stream.STDERR: b"", Stream.TTY: b""}
        for _ in range(200):
            stream = rng.choice(list(written))
            data = bytes(rng.choice(b"ab\n\r") for _ in range(rng.randrange(12)))
            written[stream] += data
            store.append([LogRecord(0, stream, data)])
        for kind, stream in enumerate((Stream.STDOUT, Stream.STDERR, Stream.TTY)):
            kept = b"".join(line.data for line in map(store.line, range(store.end)) if line.kind == kind)
            kept += b"".join(part.data for part in store.partials() if part.kind == kind)
            assert kept == written[stream]
            assert all(line.data.count(b"\n") == 1 for line in map(store.line, range(store.end)) if line.kind == kind)


def test_since_finds_the_first_line_of_a_time():
    store = LineStore()
    store.append([out(b"a\n", 10), out(b"b\n", 20), out(b"c\n", 30)])
    assert [store.since(at) for at in (0, 20, 21, 99)] == [0, 1, 2, 3]


def found(store, pattern):
    index = LineIndex(store, compile_pattern(pattern))
    index.update()
    assert index.complete
    return list(index.lines)


def test_a_pattern_finds_lines_not_places():
    store = LineStore()
    store.append([out(b"error error\n"), out(b"fine\n"), err(b"An ERROR\n"), out(b"foo\n"), out(b"bar\n"), out(b"\n")])
    assert found(store, "error") == [0, 2]
    assert found(store, "ERROR") == [2]
    assert found(store, "^an") == [2]
    assert found(store, "r$") == [0, 2, 4]
    assert found(store, r"foo[^x]*bar") == [], "a match does not run over lines"
    assert found(store, r"o[^x]*") == [0, 2, 3], "a match that runs on still counts for its own line"
    assert found(store, "") == [0, 1, 2, 3, 4, 5]
    assert found(store, "$") == [0, 1, 2, 3, 4, 5]


def test_colours_and_the_returns_of_a_terminal_neither_match_nor_hide_a_match():
    store = LineStore()
    colours = [b"\x1b[31mERROR\x1b[0m a\x1b[1mb\x1b[0mc\r\n", b"\x1b[32mINFO\x1b[0m fine\n", b"plain 31\r\n", b"\r\n"]
    store.append([out(line) for line in colours])
    for pattern, numbers in {
        "^ERROR": [0],
        "31": [2],
        "[0-9]+m": [],
        "31$": [2],
        "fine$": [1],
        "abc|zzz": [0],
        "^$": [3],
    }.items():
        assert found(store, pattern) == numbers, pattern
        assert [at for at in range(4) if compile_pattern(pattern).matches(store.line(at).data)] == numbers
    store.append([out(b"\x1b[1mx" * 60_000)])
    store.append([out(b"31\n"), out(b"31\n")])
    assert found(store, "^31$|^x+$") == [4, 6], "also beside a line that came in pieces"


def test_the_index_agrees_with_asking_every_line():
    rng = random.Random(11)
    store = LineStore(cap_bytes=2 * CHUNK_BYTES)
    index = LineIndex(store, compile_pattern("7[0-3]+|é"))
    for _ in range(60):
        store.append(
            [out(b"%d %s\n" % (rng.randrange(10**9), "é".encode() * rng.randrange(2)) * 1) for _ in range(3000)]
        )
        if rng.random() < 0.5:
            index.update()
    index.update()
    assert store.first > 0
    expected = [n for n in range(store.first, store.end) if index.pattern.matches(store.line(n).data)]
    assert list(index.lines) == expected
    assert index.after(expected[3]) == expected[4]
    assert index.before(expected[3]) == expected[2]
    assert index.before(expected[0]) is None
    assert index.after(expected[-1]) is None
    assert index.row_of(expected[5]) == 5


def test_the_store_may_grow_and_drop_between_two_steps():
    store = LineStore(cap_bytes=2 * CHUNK_BYTES)
    batch = [out(b"hit %05d " % at + b"x" * 90 + b"\n") for at in range(20_000)]
    store.append(batch)
    index = LineIndex(store, compile_pattern("hit"))
    steps = index.advance()
    next(steps)
    store.append(batch)
    store.append(batch)
    for _ in steps:
        pass
    index.update()
    assert list(index.lines) == list(range(store.first, store.end))


@pytest.mark.parametrize("pattern", ["(", "*", "[z-a]", "a{2,1}", "(?P<x"])
def test_a_pattern_that_does_not_hold_is_an_error_of_the_user(pattern):
    with pytest.raises(UsageError, match="not a regular expression"):
        compile_pattern(pattern)
