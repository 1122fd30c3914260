"""Older lines put before the oldest: numbers stay, indexes follow, the cap waits while somebody reads."""

from __future__ import annotations

from sandbox_console.logs.index import PIECE, LineIndex
from sandbox_console.logs.pattern import compile_pattern
from sandbox_console.logs.store import CHUNK_BYTES, MARK, LineStore
from sandbox_console.model.log import LogGap, LogRecord, Stream


def numbered(start, end, pad=b""):
    return [LogRecord(at, Stream.STDOUT, b"line %d%s\n" % (at, pad)) for at in range(start, end)]


def data(store):
    return [store.line(number).data for number in range(store.first, store.end)]


def test_lines_keep_their_numbers():
    store = LineStore()
    store.append(numbered(100, 110))
    assert store.prepend(LineStore.of([*numbered(50, 99), LogRecord(99, Stream.STDOUT, b"no end")])) == 50
    assert (store.first, store.end) == (-50, 10)
    assert store.line(0).data == b"line 100\n"
    assert store.line(-50).data == b"line 50\n"
    assert data(store) == [
        *(one.data for one in numbered(50, 99)),
        b"no end",
        *(one.data for one in numbered(100, 110)),
    ]
    store.prepend(LineStore.of(numbered(0, 50)))
    store.append(numbered(110, 115))
    assert store.line(-100).data == b"line 0\n"
    assert store.line(14).data == b"line 114\n"
    assert store.since(60) == -40


def test_an_index_finds_what_came_at_either_end():
    store = LineStore()
    store.append(numbered(100, 200))
    index = LineIndex(store, compile_pattern("7$"))
    index.update()
    store.prepend(LineStore.of(numbered(0, 100)))
    store.append(numbered(200, 300))
    index.update()
    expected = [number for number in range(store.first, store.end) if store.line(number).data.endswith(b"7\n")]
    assert list(index.lines) == expected
    assert index.complete


def test_the_newest_lines_are_looked_at_first_and_in_pieces():
    store = LineStore()
    store.append(numbered(0, 3 * PIECE))
    index = LineIndex(store, compile_pattern("line"))
    steps = index.advance()
    next(steps)
    assert index.lines[-1] == store.end - 1
    assert 0 < len(index.lines) <= PIECE
    assert 0 < index.share < 1
    index.update()
    assert list(index.lines) == list(range(store.end))
    assert index.share == 1


def test_nothing_is_dropped_up_to_twice_the_cap_while_it_is_read():
    store = LineStore(2 * CHUNK_BYTES)
    store.holding = True
    store.append(numbered(0, 3000, b"x" * 1000))
    assert store.dropped == 0
    store.append(numbered(3000, 9000, b"x" * 1000))
    assert store.dropped > 0
    assert store.size_bytes <= 4 * CHUNK_BYTES
    store.holding = False
    store.append(numbered(9000, 9001))
    assert store.size_bytes <= 2 * CHUNK_BYTES


def test_marks_and_gaps_are_lines_that_say_what_they_are():
    store = LineStore()
    store.append([*numbered(0, 2), LogGap(2, "slow viewer", 1200)])
    store.mark(3, "here")
    assert [line.kind for line in map(store.line, store.marks)] == [MARK]
    assert store.line(2).data == b"[1,200 lines lost: slow viewer]\n"


def test_sources_are_told_apart_and_their_parts_are_not_joined():
    store = LineStore()
    store.append([LogRecord(1, Stream.STDOUT, b"one ")], source=3)
    store.append([LogRecord(1, Stream.STDOUT, b"two\n")], source=4)
    store.append([LogRecord(2, Stream.STDOUT, b"end\n")], source=3)
    assert [(store.line(at).source, store.line(at).data) for at in range(2)] == [(4, b"two\n"), (3, b"one end\n")]


def test_a_line_without_end_can_be_read_again():
    store = LineStore()
    store.append([LogRecord(7, Stream.STDERR, b"half")])
    store.append([LogRecord(5, Stream.STDOUT, b"of another")], source=2)
    assert store.take_partials() == 7
    assert [line.source for line in store.partials()] == [2]
    assert store.take_partials() is None
