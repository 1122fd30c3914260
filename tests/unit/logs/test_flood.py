"""A sandbox that floods its log costs the disk so many bytes a second, and the log says what it left out."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from contextlib import contextmanager

import pytest

from sandbox_console.backends.bubblewrap import logs
from sandbox_console.backends.bubblewrap.supervise import segments
from sandbox_console.model.log import LogGap, LogQuery, LogRecord

RATE = 1000


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

        def time_ns(self):
            return int(self.now * 1e9)

    made = Clock()
    monkeypatch.setattr(segments, "time", made)
    return made


async def found(folder):
    return [item async for batch in logs.read(folder, LogQuery(), lambda: False) for item in batch]


def kept(items):
    return b"".join(item.data for item in items if isinstance(item, LogRecord))


async def test_what_is_over_the_rate_is_left_out_and_said(tmp_path, clock):
    writer = segments.Writer(str(tmp_path / "logs"), 1 << 20, 4, RATE)
    line = b"x" * 99 + b"\n"
    for _ in range(200):  # 20,000 bytes in 10 s of 1,000 each
        writer.write(segments.STDOUT, line)
        clock.now += 0.01
    clock.now += 5
    writer.write(segments.STDOUT, b"after\n")
    items = await found(tmp_path)
    gaps = [item for item in items if isinstance(item, LogGap)]
    lost = sum(gap.lines for gap in gaps)
    assert RATE <= len(kept(items)) <= 4 * RATE
    assert len(kept(items)) == (200 - lost) * len(line) + len(b"after\n")
    assert len(gaps) <= 10
    assert sum(int(gap.reason.split()[2]) for gap in gaps) == lost * len(line)
    assert items[-1].data == b"after\n"


async def test_what_was_left_out_last_is_told_though_nothing_follows(tmp_path, clock):
    writer = segments.Writer(str(tmp_path / "logs"), 1 << 20, 4, RATE)
    writer.write(segments.STDOUT, b"half a line " * 100)
    assert not writer.owes
    writer.write(segments.STDOUT, b"gone\n" * 3)
    assert writer.owes
    writer.tell_losses()
    assert not writer.owes
    items = await found(tmp_path)
    assert isinstance(items[-1], LogGap)
    assert (items[-1].lines, items[-1].reason) == (3, "a flood: 15 bytes were left out")
    assert kept(items) == b"half a line " * 100


async def test_without_a_rate_nothing_is_left_out(tmp_path, clock):
    writer = segments.Writer(str(tmp_path / "logs"), 1 << 20, 4)
    for _ in range(100):
        writer.write(segments.STDOUT, b"y" * 999 + b"\n")
    writer.tell_losses()
    assert len(kept(await found(tmp_path))) == 100_000


@pytest.fixture
def disk(monkeypatch):
    """``with disk(room):`` only writes of so many bytes fit."""

    @contextmanager
    def full(room=0):
        write = os.write

        def refuse(fd, data):
            if len(data) > room:
                raise OSError(errno.ENOSPC, "no space")
            return write(fd, data)

        with monkeypatch.context() as patch:
            patch.setattr(segments.os, "write", refuse)
            yield

    return full


async def test_a_disk_that_was_full_at_a_new_file_takes_output_again(tmp_path, disk):
    writer = segments.Writer(str(tmp_path / "logs"), 930, 4)
    writer.write(segments.STDOUT, b"x" * 899 + b"\n")
    with disk():
        for _ in range(10):
            writer.write(segments.STDOUT, b"y" * 899 + b"\n")
    writer.write(segments.STDOUT, b"after\n")
    items = await found(tmp_path)
    assert [(one.lines, one.reason) for one in items if isinstance(one, LogGap)] == [(10, "the disk was full")]
    assert kept(items) == b"x" * 899 + b"\nafter\n"


async def test_a_full_disk_costs_one_gap_though_a_gap_alone_would_fit(tmp_path, disk):
    writer = segments.Writer(str(tmp_path / "logs"), 1 << 20, 4)
    with disk(room=100):
        for _ in range(10):
            writer.write(segments.STDOUT, b"y" * 899 + b"\n")
    writer.write(segments.STDOUT, b"after\n")
    items = await found(tmp_path)
    assert [one.lines for one in items if isinstance(one, LogGap)] == [10]
    assert items[-1].data == b"after\n"


@pytest.mark.parametrize("begun", [b"", b"SBXLOG"])
async def test_a_file_that_a_killed_supervisor_only_began_hides_nothing(tmp_path, begun):
    folder = tmp_path / "logs"
    segments.Writer(str(folder), 1 << 20, 4).write(segments.STDOUT, b"one\ntwo\n")
    (folder / "00000002.log").write_bytes(begun)
    segments.Writer(str(folder), 1 << 20, 4).write(segments.STDOUT, b"three\n")
    assert kept(await found(tmp_path)) == b"one\ntwo\nthree\n"
    assert not [item for item in await found(tmp_path) if isinstance(item, LogGap)]
    (folder / "00000004.log").write_bytes(begun)
    last = [item async for batch in logs.read(tmp_path, LogQuery(tail=2), lambda: False) for item in batch]
    assert kept(last) == b"two\nthree\n"


async def test_a_half_frame_of_a_killed_supervisor_does_not_hold_a_reader_for_ever(tmp_path):
    folder = tmp_path / "logs"
    segments.Writer(str(folder), 1 << 20, 4).write(segments.STDOUT, b"one\n")
    with (folder / "00000001.log").open("ab") as file:
        file.write(segments.FRAME.pack(1, segments.STDOUT, 100) + b"half")
    segments.Writer(str(folder), 1 << 20, 4).write(segments.STDOUT, b"two\n")
    reader = logs.Reader(folder, LogQuery())
    reading = asyncio.create_task(asyncio.to_thread(reader.read))
    try:
        assert kept(await asyncio.wait_for(asyncio.shield(reading), 20)) == b"one\ntwo\n"
    finally:
        reader.close()


class Flood:
    """Numbered lines, as fast as a thread writes them, into files that hold about 40 of them."""

    def __init__(self, folder, lines, *, endless=False):
        self.lines, self.endless, self.written, self.told = lines, endless, 0, threading.Event()
        self._writer = segments.Writer(str(folder / "logs"), 4096, 4)
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while self.written < self.lines or (self.endless and not self.told.is_set()):
            self.written += 1
            self._writer.write(segments.STDOUT, b"%08d %s\n" % (self.written, b"x" * 90))

    def live(self):
        return self._thread.is_alive()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.told.set()
        self._thread.join()


@pytest.mark.parametrize("tail", [None, 5])
async def test_a_follower_of_a_fast_rotation_ends_with_the_sandbox_and_has_its_end(tmp_path, tail):
    with Flood(tmp_path, 20_000) as flood:
        query = LogQuery(follow=True, tail=tail)
        async with asyncio.timeout(120):
            items = [item async for batch in logs.read(tmp_path, query, flood.live) for item in batch]
    numbers = [int(item.data[:8]) for item in items if isinstance(item, LogRecord)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 20_000
    if tail is None:
        assert len(numbers) + sum(item.lines for item in items if isinstance(item, LogGap)) == 20_000


@pytest.mark.parametrize("query", [LogQuery(follow=True), LogQuery(follow=True, since=time.time() + 3600)])
async def test_a_follower_of_a_flood_ends_when_it_is_told(tmp_path, query):
    """Also one that skips everything, and therefore has nothing to return."""
    threads = threading.active_count()
    with Flood(tmp_path, 0, endless=True) as flood:
        seen = asyncio.Event()

        async def follow():
            async for _ in logs.read(tmp_path, query, flood.live):
                seen.set()

        following = asyncio.create_task(follow())
        while flood.written < 2000:
            await asyncio.sleep(0.01)
        following.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_default_executor()
        assert flood.live()
    assert threading.active_count() <= threads
