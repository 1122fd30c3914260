"""Checks what a removed sandbox leaves: no process, mount, network, file or open descriptor of ours."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from pathlib import Path

import pytest

from sandbox_console.model.capability import Capability
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually, wait_s

_VALUE = "hunter2-of-the-leavings"
_SECRET = ResolvedSecret("TOKEN", _VALUE)
_NUMBERS = {7731, 7732, 7733, 7734}
_MOST_BYTES = 64 * 1024 * 1024


class Leaving(Checks):
    async def test_no_process_of_it_is_left(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC, Capability.REMOVE)
        ref = await rig.script("sleep 7731 & trap '' TERM; sleep 7732")
        process = await rig.exec(ref, "sh", "-c", "sleep 7733 & sleep 7734")

        async def all_run() -> bool:
            if rig.profile.own_kernel:
                seen = await rig.processes(ref)
                return all(f"sleep {number} " in seen for number in _NUMBERS)
            return _processes() == _NUMBERS

        await eventually(all_run, f"there are {_processes()}")
        await rig.remove(ref)

        async def gone() -> bool:
            return not _processes()

        await eventually(gone, "a process lives on")
        async with asyncio.timeout(wait_s()):
            assert (await process.wait()).code != 0

    async def test_no_mount_network_or_file_of_it_is_left(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC, Capability.REMOVE)
        if rig.profile.leftovers is None:
            pytest.skip("the profile names no leftovers")
        await (
            rig.idle() if rig.profile.lent is not None else rig.remove(await rig.make())
        )  # made once for all sandboxes
        before = await asyncio.to_thread(rig.profile.leftovers)
        ref = await rig.make(labels={"k": "v"})
        await rig.sh(ref, "echo x >/tmp/x")
        assert await asyncio.to_thread(rig.profile.leftovers) != before
        await rig.remove(ref)

        async def gone() -> bool:
            return await asyncio.to_thread(rig.profile.leftovers or set) <= before

        await eventually(gone, "something of it is left")

    async def test_a_create_that_fails_leaves_nothing(self, rig: Rig) -> None:
        rig.needs_sh(Capability.CREATE)
        spec = rig.spec(command=("no-such-program-of-the-suite",))
        with contextlib.suppress(Exception):
            ref = await rig.backend.create(await rig.permit("create"), spec, (), lambda _: None)
            rig.made.append(ref)
            await rig.start(ref)
        for ref in [one.ref for one in await rig.backend.list() if one.name == spec.name]:
            await rig.remove(ref)
        assert spec.name not in [one.name for one in await rig.backend.list()]

    async def test_no_descriptor_of_ours_is_left(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EXEC, Capability.SHELL, Capability.REMOVE)

        async def one_life() -> None:
            ref = await rig.make()
            await rig.sh(ref, "echo x")
            terminal = await rig.shell(ref)
            await terminal.close()
            await rig.logs(ref)
            await rig.remove(ref)

        await one_life()
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted, not read
        for _ in range(3):
            await one_life()

        async def none_more() -> bool:
            gc.collect()
            return len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208 - a pool may keep a connection or two

        await eventually(none_more, "each life leaves descriptors open")

    async def test_a_secret_is_nowhere_on_disk(self, rig: Rig) -> None:
        """Neither while it runs nor afterwards, and not in the audit log of this check either."""
        rig.needs_sh(Capability.SECRET_ENV)
        ref = await rig.make(secrets=(_SECRET,))
        await rig.sh(ref, 'test -n "$TOKEN"', secrets=(_SECRET,))
        await rig.stop(ref, grace_s=0.2)
        await rig.start(ref, (_SECRET,))
        for folder in (rig.folder, *rig.profile.disk):
            assert await asyncio.to_thread(_holding, folder) == []
        await rig.remove(ref)
        for folder in (rig.folder, *rig.profile.disk):
            assert await asyncio.to_thread(_holding, folder) == []


def _processes() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found |= {int(words[1])} if words[0] == b"sleep" and words[1].startswith(b"773") else set()
    return found


def _holding(folder: Path) -> list[str]:
    """The files below a folder that contain the value."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES:
                found += [str(path)] if _VALUE.encode() in path.read_bytes() else []
    return found
