"""Checks shells on a PTY."""

from __future__ import annotations

import asyncio

import pytest

from sandbox_console.backends.base import Terminal
from sandbox_console.errors import Conflict
from sandbox_console.model.capability import Capability
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually, wait_s


async def read_until(terminal: Terminal, marker: bytes) -> bytes:
    """Read the terminal's output up to a marker."""
    seen = b""
    async with asyncio.timeout(wait_s()):
        while marker not in seen:
            data = await terminal.read()
            assert data, f"it ended after {seen!r}"
            seen += data
    return seen


async def read_to_the_end(terminal: Terminal) -> bytes:
    seen = b""
    async with asyncio.timeout(wait_s()):
        while data := await terminal.read():
            seen += data
    return seen


class Shells(Checks):
    async def test_a_shell_greets_and_answers(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        terminal = await rig.shell(await rig.idle())
        await terminal.write(b"echo an''swer; tty\r")
        seen = await read_until(terminal, b"/dev/")
        assert b"answer" in seen
        await terminal.close()

    async def test_its_size_is_as_asked_and_follows_a_resize(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        terminal = await rig.shell(await rig.idle(), cols=101, rows=33)
        await terminal.write(b"stty size; echo E''ND\r")
        assert b"33 101" in await read_until(terminal, b"END")
        await terminal.resize(77, 22)
        await terminal.write(b"stty size; echo E''ND\r")
        assert b"22 77" in await read_until(terminal, b"END")
        await terminal.close()

    async def test_ctrl_c_interrupts_and_the_shell_lives(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        ref = await rig.idle()
        terminal = await rig.shell(ref)
        await terminal.write(b"echo R''EADY; sleep 7781\r")
        await read_until(terminal, b"READY")

        async def sleeping() -> bool:
            return "sleep 7781" in [line.strip() for line in (await rig.processes(ref)).splitlines()]

        await eventually(sleeping, "the command did not begin")
        await terminal.write(b"\x03")
        await terminal.write(b"echo al''ive\r")
        await read_until(terminal, b"alive")
        await terminal.close()

    async def test_ctrl_d_ends_it(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        terminal = await rig.shell(await rig.idle())
        await terminal.write(b"echo R''EADY\r")
        await read_until(terminal, b"READY")
        await asyncio.sleep(0.1)
        await terminal.write(b"\x04")
        await read_to_the_end(terminal)
        assert (await terminal.wait()).code == 0
        await terminal.close()

    async def test_its_code_is_told(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        terminal = await rig.shell(await rig.idle())
        await terminal.write(b"exit 7\r")
        await read_to_the_end(terminal)
        assert (await terminal.wait()).code == 7
        await terminal.close()

    async def test_closing_ends_the_whole_tree(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        ref = await rig.idle()
        terminal = await rig.shell(ref)
        await terminal.write(b"(trap '' HUP; exec sleep 7791) & sleep 7792 & echo R''EADY\r")
        await read_until(terminal, b"READY")
        await terminal.close()
        await terminal.close()

        async def gone() -> bool:
            return "sleep 779" not in await rig.processes(ref)

        await eventually(gone, "a process of the shell's tree lives on")

    async def test_a_burst_comes_through(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        size = 2_000_000 if rig.profile.slow else 10_000_000
        terminal = await rig.shell(await rig.idle())
        await terminal.write(b"head -c %d /dev/zero | tr '\\0' x; echo E''ND\r" % size)
        count, tail = 0, b""
        async with asyncio.timeout(wait_s()):
            while b"END" not in tail:
                data = await terminal.read()
                assert data, "it ended in the middle"
                count += data.count(b"x")
                tail = (tail + data)[-100:]
        assert count >= size
        await terminal.close()

    async def test_a_reader_who_pauses_loses_nothing(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        terminal = await rig.shell(await rig.idle())
        await terminal.write(b"i=0; while [ $i -lt 20000 ]; do echo line-$i; i=$((i+1)); done; echo E''ND\r")
        await asyncio.sleep(0.5)  # like a hidden screen: nobody reads
        seen = await read_until(terminal, b"END")
        assert all(f"line-{i}\r\n".encode() in seen for i in range(0, 20000, 997))
        await terminal.close()

    async def test_two_shells_do_not_meet(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL)
        ref = await rig.idle()
        one, two = await rig.shell(ref), await rig.shell(ref)
        await one.write(b"MARK=o''ne; echo E''ND\r")
        await read_until(one, b"END")
        await two.write(b"echo [$MARK]; echo E''ND\r")
        assert b"[]" in await read_until(two, b"END")
        await one.close()
        await two.write(b"echo al''ive\r")
        await read_until(two, b"alive")
        await two.close()

    async def test_the_sandboxs_end_is_the_shells(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SHELL, Capability.KILL)
        ref = await rig.make()
        terminal = await rig.shell(ref)
        await rig.backend.kill(await rig.permit("kill"), ref, "SIGKILL")
        await read_to_the_end(terminal)
        async with asyncio.timeout(wait_s()):
            assert (await terminal.wait()).code != 0
        await terminal.close()

    async def test_a_stopped_one_has_no_shell(self, rig: Rig) -> None:
        rig.needs(Capability.SHELL)
        ref = await rig.make(start=False)
        with pytest.raises(Conflict):
            await rig.shell(ref)
