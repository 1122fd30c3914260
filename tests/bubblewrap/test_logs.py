from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Make, until

from sandbox_console.backends.bubblewrap.logs import read
from sandbox_console.backends.bubblewrap.supervise import segments
from sandbox_console.model.log import LogGap, LogQuery, LogRecord, Stream


async def test_streams_times_and_bytes_are_kept(make: Make) -> None:
    began = time.time_ns()
    box = await make("sh", "-c", r"printf 'a\000\377\033[31m\r\nno end'; sleep 0.1; echo bad >&2; sleep 0.1")
    await until(lambda: box.raw["status"] == "exited")
    items = await box.logs()
    assert [(item.stream, item.data) for item in items] == [
        (Stream.STDOUT, b"a\0\xff\x1b[31m\r\n"), (Stream.STDERR, b"bad\n"), (Stream.STDOUT, b"no end"),
    ]  # fmt: skip
    assert all(began < item.at_ns < time.time_ns() for item in items)


async def test_tail_since_and_until(make: Make) -> None:
    box = await make("sh", "-c", "seq 1 1000; sleep 0.3; echo late")
    await until(lambda: box.raw["status"] == "exited")
    assert [item.data for item in await box.logs(tail=3)] == [b"999\n", b"1000\n", b"late\n"]
    assert await box.logs(tail=0) == []
    assert len(await box.logs(tail=5000)) == 1001
    late = (await box.logs(tail=1))[0].at_ns / 1e9
    assert [item.data for item in await box.logs(since=late - 0.1)] == [b"late\n"]
    assert len(await box.logs(until=late - 0.1)) == 1000


async def test_following_sees_output_as_it_comes_and_ends_with_the_sandbox(make: Make, backend) -> None:
    box = await make("sh", "-c", "echo one; sleep 0.3; printf prompt; sleep 0.6; echo; echo two")
    seen: list[tuple[float, bytes]] = []
    async for batch in backend.logs(box.ref, LogQuery(follow=True)):
        seen += [(time.time(), item.data) for item in batch]
    assert b"".join(data for _, data in seen) == b"one\nprompt\ntwo\n"
    assert seen[0][1] == b"one\n" and seen[1][1] == b"prompt", "a part of a line is shown when it rests"


async def test_following_goes_on_over_a_restart(make: Make, backend) -> None:
    box = await make("sh", "-c", "echo up; sleep 1000")
    got = b""
    starts = 0
    async for batch in backend.logs(box.ref, LogQuery(follow=True)):
        got += b"".join(item.data for item in batch)
        if starts < 2:
            starts += 1
            await box.stop()
            if starts < 2:
                await box.start()
    assert got == b"up\nup\n"


@pytest.fixture
def options() -> dict[str, int]:
    return {"log_mib": 1, "log_files": 4, "log_rate_mib": 1024}  # whose lines come as fast as they can be read


async def test_rotation_keeps_the_newest_and_tells_what_is_gone(make: Make) -> None:
    box = await make("sh", "-c", "seq 1 500000")
    await until(lambda: box.raw["status"] == "exited")
    items = await box.logs()
    assert isinstance(items[0], LogGap)
    lines = b"".join(item.data for item in items if isinstance(item, LogRecord)).splitlines()
    assert lines[-1] == b"500000"
    assert len(lines) > 50_000
    assert items[0].lines + len(lines) in (500_000, 500_001)  # a line may be cut by the rotation
    assert sum(one.stat().st_size for one in (box.folder / "logs").iterdir()) < 1.2 * (1 << 20)
    assert [item.data for item in await box.logs(tail=2)] == [b"499999\n", b"500000\n"]


async def test_no_run_of_many_takes_the_log_of_the_first(make: Make, monkeypatch) -> None:
    box = await make("sh", "-c", "echo run")
    for _ in range(6):
        await until(lambda: box.raw["status"] == "exited")
        await box.start()
    await until(lambda: box.raw["status"] == "exited")
    assert [item.data for item in await box.logs()] == [b"run\n"] * 7
    monkeypatch.setattr(segments, "FILES_MOST", 5)
    for number in range(10):
        writer = segments.Writer(str(box.folder / "logs"), 1 << 18, 4)
        writer.write(segments.STDOUT, b"%d\n" % number)
        os.close(writer._fd)
    gap, *lines = await box.logs()
    assert [item.data for item in lines] == [b"%d\n" % number for number in range(4, 10)]
    assert gap.lines == 7 + 4


async def test_a_line_of_50_mb_comes_in_parts(make: Make, backend) -> None:
    box = await make("sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' x; echo")
    most = 0
    async with asyncio.timeout(120):
        async for batch in backend.logs(box.ref, LogQuery(follow=True)):
            most = max([most, *(len(item.data) for item in batch if isinstance(item, LogRecord))])
    assert 60_000 < most <= 200_000
    assert (await box.logs(tail=1))[-1].data.endswith(b"\n")  # which may be all of the last part


async def test_the_tail_of_a_log_longer_than_a_batch_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    many = b"".join(b"line %07d\n" % at for at in range(4096))
    frames = b"".join(segments.FRAME.pack(at + 1, segments.STDOUT, len(many)) + many for at in range(30))  # 1.5 MB
    (folder / "00000001.log").write_bytes(segments.HEAD.pack(segments.MAGIC, 0) + frames)
    found = [item async for batch in read(tmp_path, LogQuery(tail=2), lambda: False) for item in batch]
    assert [item.data for item in found] == [b"line 0004094\n", b"line 0004095\n"]


@pytest.mark.parametrize("tail", [None, 2])
async def test_who_does_not_follow_gets_what_was_there_even_of_a_flood(tail: int | None, tmp_path: Path) -> None:
    def frames(word: bytes) -> bytes:
        many = b"".join(b"%s %07d\n" % (word, at) for at in range(4096))
        return b"".join(segments.FRAME.pack(at + 1, segments.STDOUT, len(many)) + many for at in range(30))

    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "00000001.log").write_bytes(segments.HEAD.pack(segments.MAGIC, 0) + frames(b"then"))
    found, later = [], 2
    reading = read(tmp_path, LogQuery(tail=tail), lambda: True)
    async for batch in reading:
        found += [item.data for item in batch]
        if later < 20:  # a flood, which rotates
            with (folder / f"{later - 1:08}.log").open("ab") as file:
                file.write(frames(b"late"))
            lines = 4096 * 30 * (2 * later - 2)
            (folder / f"{later:08}.log").write_bytes(segments.HEAD.pack(segments.MAGIC, lines) + frames(b"late"))
            later += 1
    assert later > 2
    assert {line[:4] for line in found} == {b"then"}
    assert len(found) == (tail or 4096 * 30)
