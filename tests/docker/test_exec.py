from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.docker.conftest import collect
from tests.support.engine import SHELLLESS
from tests.support.require import requires

from sandbox_console.errors import Conflict, NotFound, UsageError
from sandbox_console.model.action import Exec
from sandbox_console.model.sandbox import SandboxRef

pytestmark = requires("docker")


@pytest.fixture
def run(backend, permit):
    async def start(ref, *argv, secrets=(), **fields):
        return await backend.exec(await permit("exec"), Exec(ref, argv, **fields), secrets)

    return start


async def test_stdin_environment_folder_and_user_are_passed(make, run):
    ref = await make()
    process = await run(ref, "sh", "-c", 'cat; echo "$A"; pwd; id -u', env={"A": "b c"}, workdir="/tmp", user="root")
    await process.write(b"typed\x00\xff")
    await process.close_stdin()
    out, _, end = await collect(process)
    assert out == b"typed\x00\xffb c\n/tmp\n0\n"
    assert end.code == 0


@pytest.mark.parametrize(
    ("argv", "code", "signal", "words"),
    [
        (("nonexistent",), 127, None, b"executable file not found"),
        (("/etc/passwd",), 126, None, b"permission denied"),
        (("sh", "-c", "kill -9 $$"), 137, 9, b""),
        (("sh", "-c", "exit 255"), 255, None, b""),
    ],
)
async def test_the_end_of_a_command_is_the_shells_convention(make, run, argv, code, signal, words):
    ref = await make()
    out, err, end = await collect(await run(ref, *argv))
    assert (end.code, end.signal, out) == (code, signal, b"")
    assert words in err
    assert b"OCI" not in err


async def test_waiting_without_reading_tells_the_same(make, run):
    ref = await make()
    assert (await (await run(ref, "nonexistent")).wait()).code == 127
    assert (await (await run(ref, "true")).wait()).code == 0


async def test_a_guest_that_closed_its_stdin_is_no_error(make, run):
    ref = await make()
    process = await run(ref, "sh", "-c", "exec <&-; echo closed; sleep 0.2")
    async with asyncio.timeout(60):
        for _ in range(20):
            await process.write(b"x" * 65536)
        assert (await collect(process))[0] == b"closed\n"
    await process.write(b"late")
    await process.close_stdin()


async def test_kill_ends_the_whole_tree(make, run, docker_engine):
    ref = await make()
    script = "trap '' HUP TERM; setsid sh -c 'trap \"\" HUP; sleep 987' & env -i sleep 988 & (sleep 989 &) ; echo up; sleep 990"
    process = await run(ref, "sh", "-c", script)
    async for _, data in process.output():
        if b"up" in data:
            break
    assert "987" in docker_engine.docker("top", ref.id, "-eo", "pid,args")
    await process.kill()
    await process.kill()
    left = docker_engine.docker("top", ref.id, "-eo", "pid,args")
    assert not [n for n in ("987", "988", "989", "990") if f"sleep {n}" in left]
    assert "sleep 1000" in left
    assert (await process.wait()).code in (129, 137)


async def test_kill_works_without_a_shell_where_the_engine_is_local(make, run, docker_engine):
    ref = await make(image=SHELLLESS, command=("sleep", "1000"))
    process = await run(ref, "sleep", "987")
    await process.kill()
    assert (await process.wait()).code == 137
    async with asyncio.timeout(30):  # a process that was killed is there until its parent has reaped it
        while "987" in docker_engine.docker("top", ref.id, "-eo", "pid,args"):
            await asyncio.sleep(0.05)


async def test_a_hundred_megabytes_wait_for_a_slow_reader(make, run):
    ref = await make()
    process = await run(ref, "sh", "-c", "head -c 104857600 /dev/zero; echo done >&2")
    pages = lambda: int(Path("/proc/self/statm").read_text().split()[1])  # noqa: E731
    before, most, size, pauses = pages(), 0, 0, 0
    async for _, data in process.output():
        size += len(data)
        if size > (pauses + 1) << 24:
            pauses += 1
            await asyncio.sleep(0.05)
            most = max(most, pages())
    assert size == 104857600 + len(b"done\n")
    assert (most - before) * os.sysconf("SC_PAGE_SIZE") < 32 << 20


async def test_a_sandbox_that_does_not_run_refuses(make, run):
    ref = await make(start=False)
    with pytest.raises(Conflict):
        await run(ref, "true")
    with pytest.raises(NotFound):
        await run(SandboxRef("docker", "default", "0" * 64), "true")
    with pytest.raises(UsageError):
        await run(ref)


async def test_a_command_ends_with_its_sandbox(backend, make, run, permit):
    ref = await make()
    process = await run(ref, "sh", "-c", "echo up; exec sleep 500")
    async for _ in process.output():
        break
    await backend.kill(await permit("kill"), ref, "SIGKILL")
    async with asyncio.timeout(60):
        _, _, end = await collect(process)
    assert end.code in (137, None)
    await process.kill()


async def test_a_bad_user_or_folder_is_a_result(make, run):
    ref = await make()
    for fields in ({"user": "nobody-here"}, {"workdir": "/nonexistent"}):
        out, err, end = await collect(await run(ref, "true", **fields))
        assert (out, end.code) == (b"", 126)
        assert b"no" in err
