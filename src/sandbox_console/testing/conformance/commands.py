"""Checks commands beside the main process."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from sandbox_console.errors import Conflict, ConsoleError
from sandbox_console.model.capability import Capability
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.effects.process import run_to_end
from sandbox_console.service.gate.operation import ExecIO
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually, resident_mib, wait_s

_MIB = 1024 * 1024
_MUCH = 100_000_000
_FLOOD_S = 0.5


class Commands(Checks):
    @pytest.mark.parametrize("code", [0, 1, 42, 255])
    async def test_a_command_ends_with_its_code(self, rig: Rig, code: int) -> None:
        rig.needs_sh(Capability.EXEC)
        assert (await rig.sh(await rig.idle(), f"exit {code}")).code == code

    async def test_what_is_not_there_is_127(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC)
        assert (await rig.run(await rig.idle(), "no-such-command")).code == 127

    async def test_what_cannot_be_run_is_126(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        assert (await rig.run(await rig.idle(), rig.profile.not_executable)).code == 126

    async def test_killed_by_a_signal_is_128_and_its_number(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        ref = await rig.idle()
        assert (await rig.sh(ref, "kill -9 $$")).code == 137
        assert (await rig.sh(ref, "kill -15 $$")).code == 143

    async def test_stdout_and_stderr_are_apart(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        ran = await rig.sh(await rig.idle(), "echo one; echo two >&2")
        assert (ran.out, ran.err) == (b"one\n", b"two\n")

    async def test_stdin_is_passed_to_its_end(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC_STDIN)
        data = bytes(range(256)) * 4096
        assert (await rig.run(await rig.idle(), "cat", stdin=data)).out == data

    async def test_without_stdin_a_reader_ends(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC_STDIN)
        assert (await rig.run(await rig.idle(), "cat")).code == 0

    async def test_env_adds_to_the_sandboxs_own(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC)
        ref = await rig.make(env={"OWN": "1", "BOTH": "old"})
        lines = (await rig.run(ref, "env", env={"BOTH": "new words", "MORE": "ü"})).out.decode().splitlines()
        assert {"OWN=1", "BOTH=new words", "MORE=ü"} <= set(lines)

    async def test_the_working_folder_is_as_asked(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        assert (await rig.sh(await rig.idle(), "pwd", workdir="/tmp")).out == b"/tmp\n"  # noqa: S108 - the guest's

    async def test_arguments_are_passed_unaltered(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC)
        words = ("a b", "$HOME", "'\"", "*", "ü\n", "-n")
        assert (await rig.run(await rig.idle(), "echo", *words)).out == " ".join(words).encode() + b"\n"

    async def test_bytes_that_are_no_text_come_through(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        ran = await rig.sh(await rig.idle(), r"printf '\377\000\r\n\033[31m\303'; sleep 0.1; printf '\251'")
        assert ran.out == b"\xff\x00\r\n\x1b[31m\xc3\xa9"

    async def test_100_mb_come_through_in_bounded_memory(self, rig: Rig) -> None:
        rig.needs_speed()
        rig.needs_sh(Capability.EXEC)
        process = await rig.exec(await rig.idle(), "sh", "-c", f"head -c {_MUCH} /dev/zero")
        before, most, size, largest = resident_mib(), 0, 0, 0
        async with asyncio.timeout(wait_s()):
            async for _, data in process.output():
                size += len(data)
                largest = max(largest, len(data))
                most = max(most, resident_mib())
        assert (size, (await process.wait()).code) == (_MUCH, 0)
        assert largest <= _MIB
        assert most - before < 48, "the output is kept"

    async def test_a_character_cut_in_two_is_passed_on_in_two(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        process = await rig.exec(await rig.idle(), "sh", "-c", r"printf '\303'; read x; printf '\251'")
        seen = b""
        async with asyncio.timeout(wait_s()):
            async for _, data in process.output():
                seen += data
                if seen == b"\xc3":  # the first half is here before the second exists
                    await process.write(b"go\n")
        assert seen == "é".encode()

    async def test_a_time_limit_ends_the_whole_tree(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        ref = await rig.idle()
        process = await rig.exec(ref, "sh", "-c", "trap '' TERM; sleep 7761 & (sleep 7762 &); sleep 7763")
        async with asyncio.timeout(wait_s()):
            ran = await run_to_end(process, ExecIO(), Redactor(), 0.5)
        assert (ran.timed_out, ran.exit.code) == (True, 124)

        async def gone() -> bool:
            return "sleep 776" not in await rig.processes(ref)

        await eventually(gone, "a process of the command's tree lives on")

    async def test_another_user_runs_it(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC_USER)
        assert (await rig.run(await rig.idle(), "id", "-u", user="12345")).out == b"12345\n"

    async def test_an_unknown_user_is_an_error_or_126(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC_USER)
        ref = await rig.idle()
        with contextlib.suppress(ConsoleError):
            assert (await rig.run(ref, "true", user="no-such-user")).code in (125, 126)

    async def test_a_slow_reader_holds_the_guest_back(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        ref = await rig.idle()
        process = await rig.exec(ref, "sh", "-c", f"head -c {64 * _MIB} /dev/zero; : marker-of-flood")
        until = time.monotonic() + rig.profile.flood_s
        await asyncio.sleep(min(_FLOOD_S, rig.profile.flood_s))
        try:
            assert "marker-of-flood" in await rig.processes(ref)
            while time.monotonic() < until:
                await asyncio.sleep(_FLOOD_S)
                assert "marker-of-flood" in await rig.processes(ref)
        finally:
            await process.kill()

    async def test_kill_ends_the_whole_tree(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC)
        ref = await rig.idle()
        process = await rig.exec(ref, "sh", "-c", "trap '' TERM HUP; sleep 7771 & (sleep 7772 &) ; echo up; sleep 7773")
        async with asyncio.timeout(wait_s()):
            async for _, data in process.output():
                if b"up" in data:
                    break
            await process.kill()
            await process.kill()

        async def gone() -> bool:
            return "sleep 777" not in await rig.processes(ref)

        await eventually(gone, "a process of the command's tree lives on")
        assert (await process.wait()).code == 137

    async def test_waiting_can_be_cancelled(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC)
        process = await rig.exec(await rig.idle(), "sleep", "1000")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await process.wait()
        await process.kill()
        async with asyncio.timeout(wait_s()):
            assert (await process.wait()).code in (129, 137, 143)

    async def test_writing_to_a_closed_stdin_is_no_error(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC_STDIN)
        process = await rig.exec(await rig.idle(), "echo", "done")
        async with asyncio.timeout(wait_s()):
            async for _ in process.output():
                pass
            await process.wait()
            await process.write(b"late" * 100_000)
            await process.close_stdin()

    async def test_twenty_at_once(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC)
        ref = await rig.idle()
        ran = await asyncio.gather(*(rig.run(ref, "echo", str(number)) for number in range(20)))
        assert [one.out for one in ran] == [f"{number}\n".encode() for number in range(20)]

    async def test_a_stopped_one_is_a_conflict(self, rig: Rig) -> None:
        rig.needs(Capability.EXEC)
        ref = await rig.make(start=False)
        with pytest.raises(Conflict):
            await rig.exec(ref, "true")

    async def test_ending_the_sandbox_ends_its_commands(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC, Capability.STOP)
        ref = await rig.make()
        process = await rig.exec(ref, "sleep", "1000")
        await rig.backend.kill(await rig.permit("kill"), ref, "SIGKILL")
        async with asyncio.timeout(wait_s()):
            assert (await process.wait()).code not in (0, None)
