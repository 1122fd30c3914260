"""Checks promises of a spec that only a guest can see: workspace, user, runtime, lifetime, limits, secrets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sandbox_console.backends.abilities import Bounded
from sandbox_console.errors import ConsoleError
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually
from sandbox_console.testing.conformance.walls import seconds

_VALUE = "hunter2-of-the-promises"
_FILE = ResolvedSecret("TOKEN", _VALUE, "file")
_PLACEHOLDER = ResolvedSecret("TOKEN", _VALUE, "placeholder", ("api.example.com",))
_FOUND = """
test -z "$TOKEN" && echo "no variable"
echo "file $(cat /run/secrets/TOKEN)"
"""
_UID = "4242"
_NO_RUNTIME = "no-such-runtime-of-the-suite"
_MIB = 1024 * 1024
_PIECE = 4 * _MIB
_FORKS = """
i=0; pids=
while [ $i -lt 60 ]; do sleep 2 & pids="$pids $!"; i=$((i+1)); done
echo all; kill $pids; wait
"""
# It takes two to three seconds, whatever a loop of this shell costs; the shell's own `read` starts no process.
_BURN = """
burn() { while read now _ </proc/uptime && [ "${now%.*}" -lt $end ]; do :; done; }
read now _ </proc/uptime; end=$((${now%.*} + 3))
"""
_NOW = "cut -d' ' -f1 /proc/uptime"


class Promises(Checks):
    async def test_a_workspace_is_the_folder_of_the_host(self, rig: Rig) -> None:
        rig.needs_sh(Capability.WORKSPACE)
        with _open_folder() as folder:
            (folder / "from-outside").write_text("a word from outside")
            ref = await rig.make(workspace=str(folder))
            seen = await rig.sh(ref, "cat /workspace/from-outside; echo 'a word from inside' >/workspace/from-inside")
            assert seen.out == b"a word from outside", "the guest does not see what is in the folder"
            assert (folder / "from-inside").exists(), f"what it writes does not come out: {seen.err!r}"
            assert (folder / "from-inside").read_text() == "a word from inside\n"

    async def test_its_user_runs_all_of_it(self, rig: Rig) -> None:
        rig.needs_sh(Capability.USER)
        ref = await rig.script("id -u; sleep 1000", user=_UID)
        assert (await rig.sh(ref, "id -u")).out.strip() == _UID.encode(), "a command has another user"
        await eventually(lambda: _said(rig, ref), "the main command says nothing")
        assert (await rig.text(ref)).strip() == _UID.encode(), "the main command has another user"

    async def test_a_runtime_that_is_not_there_is_refused(self, rig: Rig) -> None:
        rig.needs(Capability.RUNTIME)
        if rig.backend.validate(rig.spec(runtime=_NO_RUNTIME)).get("runtime"):
            return
        await rig.refusal(rig.make(runtime=_NO_RUNTIME), "a runtime that nobody has")

    async def test_a_runtime_that_is_there_runs_it(self, rig: Rig) -> None:
        rig.needs(Capability.RUNTIME)
        if not rig.profile.runtime:
            pytest.skip("the profile names no runtime")
        ref = await rig.make(runtime=rig.profile.runtime)
        assert (await rig.look(ref)).status is Status.RUNNING

    async def test_its_longest_life_ends_it_though_it_is_busy(self, rig: Rig) -> None:
        rig.needs_sh(Capability.MAX_DURATION)
        ref, life_s, begun = await _short_lived(rig)
        process = await rig.exec(ref, "sleep", "1000")
        found = await rig.until(ref, Status.EXITED, more_s=life_s)
        seen = time.time()
        await process.kill()
        assert found.started_at is not None
        assert found.finished_at is not None
        # The boot counts as part of its lifetime, and a microVM may report its end by its own clock.
        lived_s = seen - begun if rig.profile.own_kernel else found.finished_at - found.started_at
        assert lived_s >= 0.9 * life_s, "it is ended before its time"

    async def test_idle_it_is_ended_and_busy_it_is_not(self, rig: Rig) -> None:
        rig.needs_sh(Capability.IDLE_TIMEOUT)
        ref = await rig.make(idle_timeout_s=1.5)
        busy = await rig.sh(ref, "sleep 2.5; echo done")
        assert busy.out == b"done\n", "it is ended while a command runs"
        await rig.ended(ref)

    async def test_less_memory_holds_at_once(self, rig: Rig) -> None:
        rig.needs_sh(Capability.UPDATE_MEMORY)
        ref = await rig.make(memory_mib=256)
        if await _refused(rig, ref, "memory_mib", 64):
            await _grows_and_shrinks(rig, ref)
            return
        size = 128 * _MIB
        fill = f"head -c {size} /dev/zero | tail -c {size} | wc -c"
        before = await rig.sh(ref, fill)
        assert before.out.strip() == str(size).encode(), f"it has not the memory that was asked for: {before}"
        await _change(rig, ref, memory_mib=64)
        assert (await rig.sh(ref, fill)).out.strip() != str(size).encode(), "the lower limit does not hold"

    async def test_fewer_processes_hold_at_once(self, rig: Rig) -> None:
        rig.needs_sh(Capability.UPDATE_PIDS)
        ref = await rig.make(pids=200)
        before = await rig.sh(ref, _FORKS)
        assert b"all" in before.out, f"it has not the processes that were asked for: {before}"
        await _change(rig, ref, pids=32)
        assert b"all" not in (await rig.sh(ref, _FORKS)).out, "the lower limit does not hold"

    async def test_less_cpu_holds_at_once(self, rig: Rig) -> None:
        rig.needs_sh(Capability.UPDATE_CPU)
        ref, limit = await rig.make(), rig.profile.least_cpus
        await _change(rig, ref, cpus=limit)
        ran = await rig.sh(ref, f"{_BURN}{_NOW}; burn & burn & burn & burn; wait; {_NOW}; times")
        begun, ended, *own_and_children = ran.out.decode().split("\n")
        took, used = float(ended) - float(begun), sum(map(seconds, " ".join(own_and_children[:2]).split()))
        assert used <= 1.75 * limit * took + 0.1, f"the lower limit does not hold: {used} s of {took} s"

    async def test_a_secret_file_reaches_both_and_is_no_variable(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SECRET_FILE)
        ref = await rig.script(f"{_FOUND} sleep 1000", secrets=(_FILE,))
        expected = f"no variable\nfile {_VALUE}\n".encode()
        assert (await rig.sh(ref, _FOUND, secrets=(_FILE,))).out == expected, "a command has it otherwise"
        await eventually(lambda: _said(rig, ref), "the main command says nothing")
        await rig.stop(ref, grace_s=0.2)
        assert await rig.text(ref) == expected, "the main command has it otherwise"

    async def test_a_secret_file_is_on_no_disk_of_the_host(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SECRET_FILE)
        ref = await rig.make(secrets=(_FILE,))
        # Not printed: a provider may keep what a command writes.
        digest = hashlib.sha256(_VALUE.encode()).hexdigest().encode()
        assert (await rig.sh(ref, "sha256sum /run/secrets/TOKEN", secrets=(_FILE,))).out[:64] == digest, (
            "it is not there"
        )
        for folder in (rig.folder, *rig.profile.disk):
            found = [str(one) for one in _files(folder) if await asyncio.to_thread(_holds, one, _VALUE.encode())]
            assert not found, f"it is on the host's disk: {found}"

    async def test_a_placeholder_is_all_that_a_guest_has(self, rig: Rig) -> None:
        rig.needs_sh(Capability.SECRET_PLACEHOLDER, Capability.EGRESS_ALLOWLIST)
        ref = await rig.make(secrets=(_PLACEHOLDER,), egress=("api.example.com",))
        shown = (await rig.sh(ref, 'echo "$TOKEN"', secrets=(_PLACEHOLDER,))).out.strip()
        assert shown, "there is no placeholder"
        everything = "env; cat /proc/*/environ /run/secrets/* 2>/dev/null"
        output = (await rig.sh(ref, everything, secrets=(_PLACEHOLDER,))).out
        assert _VALUE.encode() not in shown + output, "the guest has the value itself"


@contextlib.contextmanager
def _open_folder() -> Iterator[Path]:
    """A folder that every user can reach: pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


async def _said(rig: Rig, ref: SandboxRef) -> bool:
    return (await rig.text(ref)).endswith(b"\n")


async def _change(rig: Rig, ref: SandboxRef, **fields: Any) -> None:
    """Change a running sandbox's spec."""
    spec = (await rig.look(ref)).spec
    assert spec is not None
    await rig.backend.update(await rig.permit("update"), ref, structs.replace(spec, **fields))


async def _short_lived(rig: Rig) -> tuple[SandboxRef, float, float]:
    """A sandbox whose lifetime ends soon, that lifetime, and when it was made; a longer one if a boot took all."""
    life_s, begun = rig.profile.longest_s, time.time()
    with contextlib.suppress(ConsoleError):
        return await rig.make(max_duration_s=life_s), life_s, begun
    life_s, begun = 9 * life_s, time.time()
    return await rig.make(max_duration_s=life_s), life_s, begun


async def _refused(rig: Rig, ref: SandboxRef, field: str, value: Any) -> bool:
    """Whether it reports that a limit cannot be set so low while it runs; then it must neither apply nor store it."""
    spec = (await rig.look(ref)).spec
    assert spec is not None
    lower = structs.replace(spec, **{field: value})
    if not isinstance(rig.backend, Bounded) or field not in await rig.backend.out_of_bounds(ref, lower):
        return False
    await rig.refusal(_change(rig, ref, **{field: value}), f"a {field} that it says it cannot have")
    assert (await rig.look(ref)).spec == spec, "it refuses a limit, and notes it"
    return True


async def _grows_and_shrinks(rig: Rig, ref: SandboxRef) -> None:
    """Change a limit while it runs, to more than at the start and back, as its kernel sees it."""
    begun = await _memory_mib(rig, ref)

    async def more() -> bool:
        return await _memory_mib(rig, ref) >= begun + 192

    async def less() -> bool:
        return await _memory_mib(rig, ref) <= begun + 32

    await _change(rig, ref, memory_mib=512)
    await eventually(more, "it has no more memory than before")
    await _change(rig, ref, memory_mib=256)
    await eventually(less, "the lower limit does not hold")


async def _memory_mib(rig: Rig, ref: SandboxRef) -> int:
    return int((await rig.sh(ref, "grep MemTotal: /proc/meminfo")).out.split()[1]) // 1024


def _holds(file: Path, value: bytes) -> bool:
    """Whether a file contains a value. A microVM's disk may be 4 GiB of holes, so these are skipped."""
    with contextlib.suppress(FileNotFoundError), file.open("rb") as stream:
        end, at, tail = stream.seek(0, os.SEEK_END), 0, b""
        while at < end:
            try:
                data_at = os.lseek(stream.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return False  # a hole to its end
            tail = tail if data_at == at else b""
            piece = os.pread(stream.fileno(), min(_PIECE, end - data_at), data_at)
            if value in tail + piece:
                return True
            at, tail = data_at + max(len(piece), 1), (tail + piece)[1 - len(value) :]
    return False


def _files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file() and not one.is_symlink()]
