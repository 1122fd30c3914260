"""A sandbox that floods its log costs the disk so many bytes a second, and the log says what it left out."""

from __future__ import annotations

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
