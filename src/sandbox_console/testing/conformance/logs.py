"""The main process's output."""

from __future__ import annotations

import asyncio

from sandbox_console.model.capability import Capability
from sandbox_console.model.log import LogQuery, LogRecord, Stream
from sandbox_console.testing.conformance.rig import WAIT_S, Checks, Rig


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
        async with asyncio.timeout(WAIT_S):
            await seen.wait()
            following.cancel()
            assert isinstance((await asyncio.gather(following, return_exceptions=True))[0], asyncio.CancelledError)

    async def test_a_long_line_is_whole(self, rig: Rig) -> None:
        rig.needs_sh(Capability.LOGS)
        ref = await rig.script("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo after")
        await rig.ended(ref)
        assert await rig.text(ref) == b"x" * 1_000_000 + b"\nafter\n"

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
