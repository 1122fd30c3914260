"""Reading goes on where it was left: every line once, whatever times the lines have and wherever it was left."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress

import pytest

from sandbox_console.backends.bubblewrap import logs
from sandbox_console.backends.bubblewrap.supervise import segments
from sandbox_console.logs.read_position import Reading, ReadPosition
from sandbox_console.logs.store import LineStore
from sandbox_console.model.log import LogGap, LogRecord, Stream
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.tui.logs.log_feed import AGAIN, Feed

SANDBOX = Sandbox(SandboxRef("bubblewrap", "local", "x"), "x", Status.RUNNING)


class Reads:
    """What a feed asks of a console, on the real files of a real writer."""

    def __init__(self, folder):
        self.writer = segments.Writer(str(folder / "logs"), 1 << 20, 4)
        self._folder = folder

    async def inspect(self, ref):
        return SANDBOX

    async def logs(self, ref, query):
        async with aclosing(logs.read(self._folder, query, lambda: True)) as batches:
            async for batch in batches:
                yield batch


class Followed:
    """A feed into a store that is begun and left as rows are looked at and passed."""

    def __init__(self, console):
        self.store = LineStore()
        self._feed = Feed(console, SANDBOX, self.store.append, lambda _: None, self.store.take_partials)

    @property
    def text(self):
        lines = [self.store.line(number) for number in range(self.store.first, self.store.end)]
        return b"".join(line.data for line in [*lines, *self.store.partials()])

    async def until(self, text):
        async with asyncio.timeout(30):
            task = asyncio.create_task(self._feed.follow(1000))
            while text not in self.text:
                await asyncio.sleep(0.01)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.mark.parametrize("left_at", [b"a\n", b"half"], ids=["before the half line was shown", "after"])
async def test_a_line_that_was_not_over_when_it_was_left_comes_whole_and_nothing_comes_twice(tmp_path, left_at):
    console = Reads(tmp_path)
    followed = Followed(console)
    console.writer.write(segments.STDOUT, b"a\nhalf")
    await followed.until(left_at)
    await followed.until(b"half")
    console.writer.write(segments.STDOUT, b" and half\nb\nb\nend")
    await followed.until(b"b\n")
    await followed.until(b"end")
    assert followed.text == b"a\nhalf and half\nb\nb\nend"


async def test_what_rotation_took_is_told_once_and_not_at_each_return(tmp_path):
    console = Reads(tmp_path)
    for at in range(6):
        console.writer.write(segments.STDOUT, b"%d %s\n" % (at, b"x" * (1 << 20)))
    followed = Followed(console)
    for text in (b"one", b"two", b"three"):
        console.writer.write(segments.STDOUT, text + b"\n")
        await followed.until(text)
    assert followed.text.count(b"lost") <= 1
    assert followed.text.endswith(b"one\ntwo\nthree\n")


async def test_of_a_flood_that_nobody_saw_the_newest_is_read_and_the_rest_told(tmp_path):
    console = Reads(tmp_path)
    followed = Followed(console)
    console.writer.write(segments.STDOUT, b"one\ntwo\n")
    await followed.until(b"two\n")
    for start in range(0, 6000, 100):
        console.writer.write(segments.STDOUT, b"".join(b"%d\n" % at for at in range(start, start + 100)))
    await followed.until(b"5999\n")
    lines = followed.text.decode().splitlines()
    assert len(lines) == 2 + 1 + 1000 * AGAIN
    assert lines[:2] == ["one", "two"]
    assert "came while nobody looked" in lines[2]
    assert lines[3] == str(6000 - 1000 * AGAIN)
    await followed.until(b"5999\n")
    assert followed.text.count(b"lost") == 1, "what was read is not told as missing at the next return"


def test_readings_of_any_pieces_give_every_line_once():
    rand = random.Random(1)
    lines = []
    at = 0
    for number in range(3000):
        at += rand.choice((0, 0, 0, 1, 40 * 10**6))
        text = b"same\n" if rand.random() < 0.3 else b"%d\n" % number
        lines.append(LogRecord(at, rand.choice((Stream.STDOUT, Stream.STDERR)), text))
    lines.insert(1500, LogGap(lines[1500].at_ns, "slow viewer", 3))
    places, told, end = ReadPosition(), [], 0
    while end < len(lines):
        since = places.since_ns
        end = min(len(lines), end + rand.randrange(1, 90))
        reading = Reading(places)
        told += reading.new([line for line in lines[:end] if since is None or line.at_ns >= since])
    assert told == lines


def test_two_views_of_one_sandbox_count_a_line_once_and_a_clock_put_back_loses_none():
    places = ReadPosition()
    one, two = Reading(places), Reading(places)
    lines = [LogRecord(at, Stream.STDOUT, b"line\n") for at in (7, 7, 8, 9)]
    assert [len(reading.new([line])) for line in lines for reading in (one, two)] == [1, 0] * 4
    assert len(one.new([LogRecord(3, Stream.STDOUT, b"earlier\n")])) == 1
