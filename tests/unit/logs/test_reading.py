"""Levels, JSON in short, several sources by time, and the shelf of logs that were looked at."""

from __future__ import annotations

import random

import pytest

from sandbox_console.logs.fields import DEPTH_ROWS, fold, parse, spread
from sandbox_console.logs.level import Level, level_of
from sandbox_console.logs.merge import Merger
from sandbox_console.logs.recent_logs import RecentLog, RecentLogs
from sandbox_console.logs.store import LineStore
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import SandboxRef


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("2026-01-02 10:00:00,123 ERROR worker: it failed", Level.ERROR),
        ("time=x level=warn msg=y", Level.WARN),
        ('{"severity": "Critical"}', Level.FATAL),
        ("[error] 12#0: open() failed", Level.ERROR),
        ("W0102 15:04:05.000001 1 reflector.go:1] stale", Level.WARN),
        ("warning: unused variable", Level.WARN),
        ("DEBUG:root:x", Level.DEBUG),
        ("no errors were found", Level.NONE),
        ("information about the ERRORS table", Level.NONE),
        ("x" * 100_000 + " ERROR", Level.NONE),
    ],
)
def test_levels(text, level):
    assert level_of(text) is level


def test_json_in_the_order_in_which_it_is_read():
    record = parse(b'{"user":{"id":7},"msg":"hi","level":"warn","ts":"2026-01-02T10:11:12.345Z","n":1.5}\n')
    found = fold(record)
    assert (found.level, found.at, found.message) == (Level.WARN, "10:11:12.345", "hi")
    assert found.rest == (("user", '{"id":7}'), ("n", "1.5"))
    assert spread(record)[1:4] == ['  "user": {', '    "id": 7', "  },"]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}", b"[1]", b"{not json}", b'{"a":' * 5000 + b"}", b'{"a":"' + b"x" * 99999 + b'"}']
)
def test_what_is_no_record_is_left_as_it_is(data):
    assert parse(data) is None


def test_a_record_without_end_is_cut():
    rows = spread(parse(b'{"a":[' + b",".join([b"1"] * 5000) + b"]}"))
    assert len(rows) == DEPTH_ROWS + 1
    assert "rows more" in rows[-1]


def at(ns, text="x"):
    return LogRecord(ns, Stream.STDOUT, f"{text}\n".encode())


def test_sources_come_out_by_time():
    merger = Merger(hold_s=1.0)
    times = {source: sorted(random.Random(source).sample(range(10_000), 200)) for source in range(50)}
    for source, found in times.items():
        merger.put(source, [at(ns) for ns in found], now_s=source / 100)
    assert list(merger.due(0.5)) == []
    out = [item.at_ns for _, items in merger.due(1.6) for item in items]
    assert out == sorted(ns for found in times.values() for ns in found)
    assert len(merger) == 0


def test_a_line_that_comes_late_is_given_out_and_one_source_keeps_its_order():
    merger = Merger(hold_s=0.1)
    merger.put(0, [at(100, "a"), at(90, "b"), at(110, "c")], 0.0)
    assert [item.data for _, items in merger.due(1.0) for item in items] == [b"a\n", b"b\n", b"c\n"]
    merger.put(1, [at(50, "late")], 1.0)
    assert [(source, items[0].data) for source, items in merger.due(2.0)] == [(1, b"late\n")]


def test_the_shelf_lets_the_living_go_first():
    def kept(name, size):
        store = LineStore()
        store.append([LogRecord(1, Stream.STDOUT, b"x" * size + b"\n")])
        return RecentLog(SandboxRef("fake", "local", name), name, store)

    shelf = RecentLogs(1000)
    shelf.put(kept("gone", 400))
    shelf.note_gone(SandboxRef("fake", "local", "gone"), 5.0)
    for name in ("a", "b", "c"):
        shelf.put(kept(name, 400))
    assert [one.name for one in shelf.gone] == ["gone"]
    assert [ref.id for ref in shelf.refs()] == ["c"]
    assert shelf.take(SandboxRef("fake", "local", "gone")).name == "gone"
    assert shelf.gone == []
