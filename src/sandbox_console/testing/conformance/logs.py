"""Checks the main process's output."""

from __future__ import annotations

import asyncio

from sandbox_console.model.capability import Capability
from sandbox_console.model.log import LogQuery, LogRecord, Stream
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually, resident_mib, wait_s

_LONG = 50 * 1024 * 1024


class Logs(Checks):
    async def test_lines_come_in_order_and_stay_after_the_end(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script("i=0; while [ $i -lt 500 ]; do echo line-$i; i=$((i+1)); done")
        await rig.ended(ref)
        assert await rig.text(ref) == b"".join(f"line-{i}\n".encode() for i in range(500))

    async def test_streams_are_told_apart(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOG_STREAMS)
        ref = await rig.script("echo one; echo two >&2")
        await rig.ended(ref)
        found = {(item.stream, item.data) for item in await rig.logs(ref) if isinstance(item, LogRecord)}
        assert found == {(Stream.STDOUT, b"one\n"), (Stream.STDERR, b"two\n")}

    async def test_tail_gives_the_last_lines(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script("for i in 1 2 3 4 5; do echo $i; done")
        await rig.ended(ref)
        assert await rig.text(ref, tail=2) == b"4\n5\n"
        assert await rig.text(ref, tail=0) == b""
        assert await rig.text(ref, tail=99) == b"1\n2\n3\n4\n5\n"

    async def test_since_and_until_cut_by_time(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script("echo early; sleep 0.5; echo late")
        await rig.ended(ref)
        early, late = [item.at_ns / 1e9 for item in await rig.logs(ref)]
        assert late - early >= 0.4
        middle = (early + late) / 2
        assert await rig.text(ref, since=middle) == b"late\n"
        assert await rig.text(ref, until=middle) == b"early\n"

    async def test_follow_gives_new_lines_and_ends_with_the_sandbox(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script("for i in 1 2 3; do echo $i; sleep 0.1; done")
        assert await rig.text(ref, follow=True) == b"1\n2\n3\n"

    async def test_following_can_be_cancelled(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script("echo up; sleep 1000")
        seen = asyncio.Event()

        async def follow() -> None:
            async for _ in rig.backend.logs(ref, LogQuery(follow=True)):
                seen.set()

        following = asyncio.create_task(follow())
        async with asyncio.timeout(wait_s()):
            await seen.wait()
            following.cancel()
            assert isinstance((await asyncio.gather(following, return_exceptions=True))[0], asyncio.CancelledError)

    async def test_a_long_line_is_whole(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo after")
        await rig.ended(ref)
        assert await rig.text(ref) == b"x" * 1_000_000 + b"\nafter\n"

    async def test_a_50_mib_line_harms_nobody(self, rig: Rig) -> None:
        """It is complete, or what was dropped is reported. It arrives in pieces, and the next line follows."""
        rig.needs_speed()
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script(f"echo before; head -c {_LONG} /dev/zero | tr '\\0' x; echo; echo after")
        await rig.ended(ref)
        before, most, size, largest, gaps, tail = resident_mib(), 0, 0, 0, 0, b""
        async with asyncio.timeout(wait_s()):
            async for batch in rig.backend.logs(ref, LogQuery()):
                for item in batch:
                    data = item.data if isinstance(item, LogRecord) else b""
                    gaps += not isinstance(item, LogRecord)
                    size, largest, tail = size + data.count(b"x"), max(largest, len(data)), (tail + data)[-7:]
                most = max(most, resident_mib())
        assert tail == b"\nafter\n"
        assert size == _LONG or gaps or size > _LONG // 4  # an engine does not report its own rotation to readers
        assert largest <= 4 * 1024 * 1024
        assert most - before < 100, "the line is kept"

    async def test_following_again_after_a_restart_loses_and_repeats_nothing(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS, Capability.RESTART)
        ref = await rig.script("for i in 1 2 3; do echo line-$i; done; sleep 1000")
        seen: list[LogRecord] = []

        async def follow() -> None:
            while True:  # like the console: from the last line that it has
                since = seen[-1].at_ns / 1e9 if seen else None
                async for batch in rig.backend.logs(ref, LogQuery(follow=True, since=since)):
                    known = {(item.at_ns, item.data) for item in seen}
                    records = (item for item in batch if isinstance(item, LogRecord))
                    seen.extend(item for item in records if (item.at_ns, item.data) not in known)
                await asyncio.sleep(0.05)

        following = asyncio.create_task(follow())
        for count in (3, 6):

            async def told(count: int = count) -> bool:
                return len(seen) >= count

            await eventually(told, f"there are {len(seen)} lines, not {count}")
            if count == 3:
                await rig.stop(ref, grace_s=0.2)
                await rig.start(ref)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert [item.data for item in seen] == [b"line-1\n", b"line-2\n", b"line-3\n"] * 2

    async def test_a_last_line_without_its_end_is_there(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script("echo one; printf two")
        await rig.ended(ref)
        assert await rig.text(ref) == b"one\ntwo"

    async def test_bytes_that_are_no_text_are_kept(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script(r"printf '\377\000\033]52;c;aGk=\007\n'")
        await rig.ended(ref)
        assert await rig.text(ref) == b"\xff\x00\x1b]52;c;aGk=\x07\n"

    async def test_a_sandbox_that_wrote_nothing_has_empty_logs(self, rig: Rig) -> None:
        rig.needs(Capability.LOGS)
        assert await rig.logs(await rig.make(start=False)) == []
