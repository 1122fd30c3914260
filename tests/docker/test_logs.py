from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import groupby

import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.log_frames import BareDemuxer, Demuxer, TtySplitter
from sandbox_console.backends.docker.log_overlap import ReportedRecords
from sandbox_console.backends.docker.logs import _Reader, longest_silence
from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.model.log import MAYBE_ROTATED, LogGap, LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import SandboxRef

STAMP = b"2026-01-02T03:04:05.123456789Z "
NS = 1767323045123456789


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


def test_frames_are_read_whatever_the_chunks():
    wire = frame(1, STAMP + b"a b\n") + frame(2, STAMP + b"\n") + frame(1, STAMP + b"x" * 20000 + b"\n")
    for size in (1, 7, 8, 9, 100, len(wire)):
        demuxer = Demuxer()
        out = [r for at in range(0, len(wire), size) for r in demuxer.feed(wire[at : at + size])]
        assert out == [
            LogRecord(NS, Stream.STDOUT, b"a b\n"),
            LogRecord(NS, Stream.STDERR, b"\n"),
            LogRecord(NS, Stream.STDOUT, b"x" * 20000 + b"\n"),
        ]


def test_joined_lines_are_the_same_bytes_in_the_same_order():
    full = b"z" * 16384
    wire = b"".join(frame(1, STAMP + f"line {number}\n".encode()) for number in range(50))
    wire += frame(2, STAMP + b"err\n") * 3 + frame(1, STAMP + full) + frame(2, STAMP + b"between\n")
    wire += frame(1, STAMP + b"rest") + frame(1, STAMP + b"\n") + frame(1, STAMP + full)
    demuxer = Demuxer()
    lines = demuxer.feed(wire) + demuxer.flush()
    whole = Demuxer()
    assert len(whole.feed_joined(wire) + whole.flush()) < 10
    for size in (1, 7, 39, 40, 1000, len(wire)):
        demuxer = Demuxer()
        out = [r for at in range(0, len(wire), size) for r in demuxer.feed_joined(wire[at : at + size])]
        out += demuxer.flush()
        assert {record.at_ns for record in out} == {NS}
        for stream in (Stream.STDOUT, Stream.STDERR):
            assert b"".join(r.data for r in out if r.stream == stream) == b"".join(r.data for r in lines if r.stream == stream)  # fmt: skip
        runs = [[record.stream, record.data] for record in lines]
        assert b"".join(r.data for r in out) == b"".join(data for _, data in runs)


def test_frames_without_times_are_the_same_bytes_in_the_same_order():
    full = b"z" * 16384
    wire = b"".join(frame(1, f"line {number}\n".encode()) for number in range(50))
    wire += frame(2, b"err\n") * 3 + frame(1, full) + frame(2, b"\n") + frame(1, b"rest\n") + frame(2, full)
    told = [(Stream.STDOUT, b"".join(f"line {number}\n".encode() for number in range(50))), (Stream.STDERR, b"err\n" * 3),
            (Stream.STDOUT, full), (Stream.STDERR, b"\n"), (Stream.STDOUT, b"rest\n"), (Stream.STDERR, full + b"\n")]  # fmt: skip
    for size in (1, 7, 8, 9, 1000, len(wire)):
        demuxer = BareDemuxer()
        out = [r for at in range(0, len(wire), size) for r in demuxer.feed(wire[at : at + size])] + demuxer.flush()
        runs = [(stream, b"".join(r.data for r in run)) for stream, run in groupby(out, lambda r: r.stream)]
        assert runs == told


def test_the_newline_that_the_local_driver_drops_is_put_back():
    later = STAMP.replace(b"05.", b"06.")
    full, wire = b"z" * 16384, b""
    for stamp, text in (
        (STAMP, full),
        (STAMP, b"rest"),
        (later, b"next\n"),
        (later, full),
        (STAMP, b"last\n"),
        (STAMP, full),
    ):
        wire += frame(1, stamp + text)
    demuxer = Demuxer()
    out = [record.data for record in demuxer.feed(wire) + demuxer.flush()]
    assert out == [full, b"rest\n", b"next\n", full, b"\n", b"last\n", full, b"\n"]


def test_a_terminals_log_is_split_at_lines_and_parts():
    long = b"y" * 16384
    wire = STAMP + b"one\r\n" + STAMP + long + STAMP + b"rest\r\n" + STAMP + b"last"
    for size in (1, 33, len(wire)):
        splitter = TtySplitter()
        out = [r.data for at in range(0, len(wire), size) for r in splitter.feed(wire[at : at + size])]
        out += [r.data for r in splitter.flush()]
        assert out == [b"one\r\n", long, b"rest\r\n", b"last"]


def test_a_replay_tells_nothing_twice_and_nothing_less():
    def record(ns, data, stream=Stream.STDOUT):
        return LogRecord(ns, stream, data)

    seen = ReportedRecords()
    told = [record(10, b"a"), record(10, b"b"), record(20, b"c"), record(15, b"e", Stream.STDERR)]
    assert seen.new(told) == told
    seen.replay()
    again = [*told, record(20, b"d"), record(16, b"f", Stream.STDERR), record(30, b"g")]
    assert seen.new(again) == again[4:]
    assert seen.overlap
    seen.replay()
    assert seen.new([record(40, b"h")])
    assert not seen.overlap


def test_equal_parts_of_one_time_are_each_told_once():
    parts = [LogRecord(10, Stream.STDOUT, b"x" * 9)] * 3
    seen = ReportedRecords()
    assert seen.new(parts[:2]) == parts[:2]
    seen.replay()
    assert seen.new(parts) == parts[2:]
    seen.live()
    assert seen.new(parts[:1]) == parts[:1]


async def read(backend, ref, **query):
    return [item async for batch in backend.logs(ref, LogQuery(**query)) for item in batch]


pytestmark_engine = requires("docker")


@pytestmark_engine
async def test_a_follow_ends_with_the_sandbox_and_has_every_line(backend, make):
    ref = await make(
        "sh", "-c", "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); [ $i = 100 ] && sleep 0.3; done; exit 5"
    )
    items = await read(backend, ref, follow=True)
    assert [int(item.data) for item in items] == list(range(200))
    assert (await backend.inspect(ref)).exit.code == 5
    assert [item.data for item in await read(backend, ref, tail=2)] == [b"198\n", b"199\n"]
    middle = items[100].at_ns / 1e9 - 0.1
    assert [int(item.data) for item in await read(backend, ref, since=middle)] == list(range(100, 200))
    assert [int(item.data) for item in await read(backend, ref, until=middle)] == list(range(100))


@pytestmark_engine
async def test_the_end_and_the_whole_of_a_log_of_2_mb_are_there(backend, make):
    line = "printf 'line %06d of a long log, and some more words of it\\n' $i"
    ref = await make("sh", "-c", f"i=1; while [ $i -le 40000 ]; do {line}; i=$((i+1)); done")  # 2.1 MB
    async with asyncio.timeout(120):
        while (await backend.inspect(ref)).status.live:
            await asyncio.sleep(0.1)
    for count in (1, 2, 500, 20_000):
        found = await read(backend, ref, tail=count)
        assert [int(item.data.split()[1]) for item in found] == list(range(40_001 - count, 40_001))
    assert sum(len(item.data) for item in await read(backend, ref)) > 2_000_000
    last = (await read(backend, ref, tail=1))[0].at_ns / 1e9
    assert (await read(backend, ref, since=last - 0.0001))[-1].data.startswith(b"line 040000 ")


@pytestmark_engine
async def test_a_long_line_comes_in_parts_that_join_to_it(backend, make):
    ref = await make("sh", "-c", "head -c 50000 /dev/zero | tr '\\0' z; echo; echo end")
    items = await read(backend, ref, follow=True)
    assert b"".join(item.data for item in items) == b"z" * 50000 + b"\nend\n"
    assert [item.data.endswith(b"\n") for item in items] == [False, False, False, True, True]


@pytestmark_engine
@pytest.mark.parametrize("driver", ["json-file", "local"])
async def test_who_wants_bytes_gets_them_whatever_the_log_driver(backend, docker_engine, unique, driver):
    name = unique()
    text = "echo one; head -c 50000 /dev/zero | tr '\\0' z; echo; echo e >&2; head -c 32768 /dev/zero | tr '\\0' y"
    docker_engine.docker(
        "run", "-d", "--log-driver", driver, "--name", name, "--network", "none", IMAGE, "sh", "-c", text
    )
    try:
        ref = SandboxRef("docker", "default", docker_engine.inspect(name)["Id"])
        await read(backend, ref, follow=True)  # until it has ended
        lines, whole = await read(backend, ref), await read(backend, ref, lines=False)
        assert ({item.at_ns for item in whole} == {0}) is (driver == "json-file")
        for stream in (Stream.STDOUT, Stream.STDERR):
            assert b"".join(r.data for r in whole if r.stream == stream) == b"".join(r.data for r in lines if r.stream == stream)  # fmt: skip
        assert b"".join(r.data for r in whole if r.stream == Stream.STDOUT) == b"one\n" + b"z" * 50000 + b"\n" + b"y" * 32768 + b"\n"  # fmt: skip
    finally:
        docker_engine.docker("rm", "-f", name)


@pytestmark_engine
async def test_a_terminals_output_is_told_as_such(backend, docker_engine, unique):
    name = unique()
    docker_engine.docker("run", "-d", "-t", "--name", name, "--network", "none", IMAGE, "sh", "-c",
                         "head -c 40000 /dev/zero | tr '\\0' t; echo; echo e >&2")  # fmt: skip
    try:
        ref = SandboxRef("docker", "default", docker_engine.inspect(name)["Id"])
        items = await read(backend, ref, follow=True)
        assert {item.stream for item in items} == {Stream.TTY}
        assert b"".join(item.data for item in items) == b"t" * 40000 + b"\r\ne\r\n"
    finally:
        docker_engine.docker("rm", "-f", name)


@pytestmark_engine
async def test_a_log_that_goes_elsewhere_is_said(backend, docker_engine, unique):
    name = unique()
    docker_engine.docker("run", "-d", "--log-driver", "none", "--name", name, "--network", "none", IMAGE, "sleep", "50")
    try:
        with pytest.raises(Unsupported, match="cannot be read back"):
            await read(backend, SandboxRef("docker", "default", docker_engine.inspect(name)["Id"]))
    finally:
        docker_engine.docker("rm", "-f", name)


@pytestmark_engine
@pytest.mark.parametrize(
    ("lines", "options", "gone"),
    [
        (9000, ("json-file", "max-size=100k", "max-file=3"), True),
        (100, ("json-file", "max-size=100k", "max-file=3"), False),
        (9000, ("local", "max-size=200k", "max-file=2"), True),
        (9000, ("json-file",), False),
    ],
)
async def test_a_log_whose_beginning_may_be_rotated_away_says_so(lines, options, gone, backend, docker_engine, unique):
    name, (driver, *rest) = unique(), options
    words = ["--log-driver", driver, *(word for one in rest for word in ("--log-opt", one))]
    docker_engine.docker(
        "run", *words, "--name", name, "--network", "none", IMAGE, "sh", "-c", f"i=0; while [ $i -lt {lines} ]; do"
        " echo line $i of a log; i=$((i+1)); done",
    )  # fmt: skip
    ref = SandboxRef("docker", "default", docker_engine.inspect(name)["Id"])
    try:
        for query in ({"lines": False}, {"lines": True}):
            items = await read(backend, ref, **query)
            assert [one.reason for one in items if isinstance(one, LogGap)] == [MAYBE_ROTATED] * gone
            assert (b"line 0 of a log" in b"".join(one.data for one in items if isinstance(one, LogRecord))) is not gone
        assert not any(isinstance(one, LogGap) for one in await read(backend, ref, tail=5))
    finally:
        docker_engine.docker("rm", "-f", name)


@pytestmark_engine
async def test_a_removed_sandbox_ends_a_follow_and_an_unknown_one_is_not_found(backend, make, permit):
    ref = await make("sh", "-c", "echo up; sleep 500")
    follow = backend.logs(ref, LogQuery(follow=True))
    assert [item.data for item in await anext(follow)] == [b"up\n"]
    await backend.remove(await permit("remove"), ref, force=True)
    async with asyncio.timeout(60):
        assert [batch async for batch in follow] == []
    with pytest.raises(NotFound):
        await read(backend, ref)


@pytestmark_engine
async def test_one_removed_before_the_last_look_ends_a_follow_too(backend, make, permit, monkeypatch):
    ref = await make("sh", "-c", "echo up; sleep 500")
    reader = _Reader(backend._connection, ref.id, LogQuery(follow=True))
    async with aclosing(reader.once(follow=True)) as batches:
        assert [item.data for item in await anext(batches)] == [b"up\n"]
    gone = Refused("can not get logs from container which is dead or marked for removal", 409)

    def removing(*_):
        raise gone

    for how in ("stream", "bulk"):
        monkeypatch.setattr(await backend._connection.engine(), how, removing)
    assert [batch async for batch in reader.once(follow=False)] == []
    with pytest.raises(NotFound, match=ref.id[:12]):
        await read(backend, ref)


@pytestmark_engine
async def test_a_stalled_reader_stops_neither_the_sandbox_nor_others(backend, make):
    ref = await make(
        "sh", "-c", "i=0; while [ $i -lt 60000 ]; do echo line-$i-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; i=$((i+1)); done"
    )
    stalled = backend.logs(ref, LogQuery(follow=True))
    await anext(stalled)
    async with asyncio.timeout(60):
        while (await backend.inspect(ref)).status.live:
            await asyncio.sleep(0.1)
    rest = [item async for batch in stalled for item in batch]
    assert rest[-1].data.startswith(b"line-59999-")


@pytest.mark.parametrize(
    ("last_ns", "times", "at"),
    [(10, (500, 510, 520), 0), (10, (12, 14, 500, 510), 2), (10, (12,), 0)],
    ids=["where we had read to", "where the engine had written to", "one record"],
)
def test_a_gap_is_told_where_nothing_was_written_for_longest(last_ns, times, at):
    assert longest_silence(last_ns, [LogRecord(one, Stream.STDOUT, b"x\n") for one in times]) == at
