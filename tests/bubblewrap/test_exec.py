from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Box, Make, host_pids, until

from sandbox_console.errors import Conflict
from sandbox_console.model.sandbox import Exit


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        (("true",), 0, ""), (("false",), 1, ""), (("sh", "-c", "exit 42"), 42, ""),
        (("nosuch",), 127, "not found"), (("/etc/passwd",), 126, "Permission denied"), (("/tmp",), 126, "denied"),
        (("sh", "-c", "kill -TERM $$"), 143, ""),
    ],
)  # fmt: skip
async def test_exit_codes_are_the_shells(make: Make, argv: tuple[str, ...], code: int, reason: str) -> None:
    box = await make()
    end, _out, _err = await box.run(*argv)
    assert end.code == code
    assert reason in end.reason
    assert end.signal == (15 if code == 143 else None)


async def test_stdin_env_workdir_and_streams(make: Make) -> None:
    box = await make(env={"A": "spec", "B": "spec"})
    end, out, err = await box.run(
        "sh", "-c", 'cat; echo "$A $B $PWD"; echo bad >&2', stdin=b"\0\xffin\n", env={"B": "exec é"}, workdir="/tmp"
    )
    assert (end, out, err) == (Exit(0), b"\0\xffin\nspec exec \xc3\xa9 /tmp\n", b"bad\n")
    end, _, _ = await box.run("true", workdir="/nosuch")
    assert end.code == 126
    assert "/nosuch" in end.reason


async def test_a_guest_that_closed_its_stdin_is_no_error(make: Make) -> None:
    box = await make()
    end, out, _ = await box.run("sh", "-c", "exec <&-; echo done", stdin=b"x" * 1_000_000)
    assert (end.code, out) == (0, b"done\n")


async def test_100_mb_of_output_in_bounded_memory(make: Make) -> None:
    box = await make()
    process = await box.exec("head", "-c", "100000000", "/dev/zero")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = 0
    async for _stream, data in process.output():
        total += len(data)
    assert (await process.wait()).code == 0
    assert total == 100_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB


async def test_twenty_commands_at_once(make: Make) -> None:
    box = await make()
    ends = await asyncio.gather(*(box.run("sh", "-c", f"sleep 0.1; echo {n}; exit {n}") for n in range(20)))
    assert [(end.code, out) for end, out, _ in ends] == [(n, f"{n}\n".encode()) for n in range(20)]


async def test_a_kill_ends_daemons_too_and_nothing_else(make: Make) -> None:
    box = await make()
    keeps = await box.exec("sleep", "31313")
    process = await box.exec("sh", "-c", "setsid sh -c 'sleep 41414 & sleep 41414' & (sleep 41414 &); echo up; wait")
    async for _stream, data in process.output():
        assert data == b"up\n"
        break
    await until(lambda: len(host_pids("sleep\x0041414")) == 3)
    await process.kill()
    await process.kill()
    assert not host_pids("sleep\x0041414")
    assert host_pids("sleep\x0031313")
    assert (await process.wait()).signal == 9
    await keeps.kill()


async def test_cancelling_the_wait_kills_the_tree(make: Make) -> None:
    box = await make()
    task = asyncio.create_task(box.run("sh", "-c", "setsid sleep 51515 & sleep 51515"))
    await until(lambda: len(host_pids("sleep\x0051515")) >= 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not host_pids("sleep\x0051515"))


async def test_a_timeout_of_the_wait_ends_the_output_of_another_task(make: Make) -> None:
    box = await make()
    process = await box.exec("sh", "-c", "echo some; sleep 52525")

    async def drain() -> bytes:
        return b"".join([data async for _stream, data in process.output()])

    draining = asyncio.create_task(drain())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.2)
    assert await asyncio.wait_for(draining, 30) == b"some\n"
    await process.kill()
    assert (await process.wait()).signal == 9
    assert not host_pids("sleep\x0052525")


async def test_a_fork_bomb_is_killed(make: Make) -> None:
    box = await make(pids=60)
    process = await box.exec("sh", "-c", "f() { f | f & }; f; sleep 61616")
    await asyncio.sleep(0.3)
    await asyncio.wait_for(process.kill(), 30)
    assert await box.sh("echo alive") == "alive\n"


async def test_killing_what_forks_without_end_harms_nothing_else(make: Make) -> None:
    box = await make()
    for _ in range(30):  # cgroup v1 passes over a process on its way into vfork when it freezes the others
        process = await box.exec("sh", "-c", "while :; do /bin/true; done & while :; do /bin/true; done")
        await asyncio.sleep(0.02)
        await process.kill()
    assert await box.sh("echo alive") == "alive\n"


async def test_what_a_command_leaves_running_lives_on(make: Make) -> None:
    box = await make()
    end, _, _ = await box.run("sh", "-c", "sleep 71717 >/dev/null 2>&1 & exit 3")
    assert end.code == 3
    assert host_pids("sleep\x0071717")


async def test_a_stopped_sandbox_is_a_conflict(make: Make) -> None:
    box = await make()
    process = await box.exec("sleep", "100")
    await box.stop()
    assert (await process.wait()).signal == 9
    with pytest.raises(Conflict, match="exited"):
        await box.run("true")
    with pytest.raises(Conflict):
        await box.shell()


async def test_no_descriptor_is_left(make: Make) -> None:
    box = await make()
    await box.run("true")
    before = len(os.listdir("/proc/self/fd"))
    theirs = _descriptors(box)
    for _ in range(5):
        await box.run("true")
        await (await box.exec("sleep", "9")).kill()
        await (await box.shell()).close()
    assert len(os.listdir("/proc/self/fd")) <= before
    await until(lambda: _descriptors(box) <= theirs)


def _descriptors(box: Box) -> int:
    """How many the supervisor has; only root may look into it."""
    return len(os.listdir(f"/proc/{box.raw['supervisor']}/fd")) if os.geteuid() == 0 else 0


async def test_the_supervisor_stays_under_12_mb(make: Make) -> None:
    box = await make("sh", "-c", "yes | head -c 50000000; sleep 1000")
    await asyncio.gather(*(box.run("true") for _ in range(20)))
    status = Path(f"/proc/{box.raw['supervisor']}/status").read_text()
    rss = int(status.partition("VmRSS:")[2].split()[0])
    assert rss < 12 * 1024, f"{rss} KiB"
