"""Kept logs: what was followed comes back byte for byte, once, within its caps, for its owner alone."""

from __future__ import annotations

import stat

import pytest

from sandbox_console.model.log import LogGap, LogRecord, Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.reads.retained_logs import Retained

REF = SandboxRef("fake", "local", "../../etc/passwd")


def lines(start, end, size=20):
    return [
        LogRecord(at, Stream.STDERR if at % 3 else Stream.STDOUT, b"%d \xff\x1b[31m" % at + b"x" * size + b"\n")
        for at in range(start, end)
    ]


@pytest.fixture
def kept(tmp_path):
    return Retained(tmp_path / "logs", 1 << 20, 1 << 16)


async def test_what_was_followed_comes_back_once(kept, tmp_path):
    items = [*lines(0, 50), LogGap(50, "slow viewer", 3), *lines(51, 60)]
    await kept.keeper(REF, "agent").store(items[:40])
    await kept.keeper(REF, "agent").store(items[30:])
    assert await kept.read(REF) == items
    again = Retained(tmp_path / "logs", 1 << 20, 1 << 16)
    await again.keeper(REF, "agent").store(lines(55, 70))
    assert [item for item in await again.read(REF) if isinstance(item, LogRecord)] == [*lines(0, 50), *lines(51, 70)]
    (one,) = await again.listing()
    assert (one.ref, one.name) == (REF, "agent")


async def test_for_its_owner_alone_and_in_its_folder(kept, tmp_path):
    await kept.keeper(REF, "agent").store(lines(0, 3))
    (path,) = (tmp_path / "logs").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_caps_hold_and_the_newest_stay(kept, tmp_path):
    for start in range(0, 4000, 100):
        await kept.keeper(REF, "agent").store(lines(start, start + 100, 100))
    size = sum(path.stat().st_size for path in (tmp_path / "logs").iterdir())
    assert size <= (1 << 16) + 20_000
    assert (await kept.read(REF))[-1] == lines(3999, 4000, 100)[0]
    for number in range(60):
        await kept.keeper(SandboxRef("fake", "local", f"s{number}"), "s").store(lines(0, 200, 100))
    assert sum(path.stat().st_size for path in (tmp_path / "logs").iterdir()) <= 1 << 20
    assert not await kept.read(REF), "the oldest went first"


async def test_a_file_cut_short_is_read_as_far_as_it_goes(kept, tmp_path):
    await kept.keeper(REF, "agent").store(lines(0, 10))
    (path,) = (tmp_path / "logs").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert await kept.read(REF) == lines(0, 9)
    path.write_bytes(b"no json at all")
    assert await kept.listing() == []


async def test_files_that_are_damaged_or_cannot_be_read_are_told(kept, tmp_path):
    await kept.keeper(REF, "agent").store([LogGap(1, "slow viewer", 3), *lines(2, 4)])
    (path,) = (tmp_path / "logs").iterdir()
    path.write_bytes(path.read_bytes().replace(b'[3, "slow', b'{3, "slow'))
    [gap, *rest] = await kept.read(REF)
    assert "damaged" in gap.reason
    assert rest == lines(2, 4)
    path.unlink()
    path.mkdir()
    [gap] = await kept.read(REF)
    assert "cannot be read: it is not a file" in gap.reason
    path.rmdir()
    (tmp_path / "logs").rmdir()
    (tmp_path / "logs").write_text("a file where the folder should be")
    assert await kept.listing() == []
    assert "cannot be read: Not a directory" in kept.problem


async def test_a_disk_that_fails_is_told_and_reading_goes_on(tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    kept = Retained(tmp_path / "logs", 1 << 20, 1 << 16)
    await kept.keeper(REF, "agent").store(lines(0, 3))
    assert "not kept" in kept.problem


async def test_lines_of_one_time_and_lines_that_come_in_parts_are_kept_whole_and_once(kept):
    def out(text, at=7):
        return LogRecord(at, Stream.STDOUT, text)

    left = kept.keeper(REF, "agent")
    await left.store([out(b"one\n"), out(b"half")])
    await left.store([out(b" more", 8)])
    for _ in range(2):
        again = kept.keeper(REF, "agent")
        await again.store([out(b"one\n"), out(b"half more of it\n"), out(b"two\n")])
        await again.store([out(b"two\n"), out(b"no end", 9)])
        await again.end()
    assert [item.data for item in await kept.read(REF)] == [
        b"one\n",
        b"half more of it\n",
        b"two\n",
        b"two\n",
        b"no end",
    ]
