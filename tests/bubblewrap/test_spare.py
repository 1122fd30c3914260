"""The command that waits in a sandbox for its order: used by the next one, confined as any, and gone when not needed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.bubblewrap.conftest import ROOT, Box, Make, host_pids, until

from sandbox_console.backends.bubblewrap import processes, stats
from sandbox_console.backends.bubblewrap.supervise import tree, wire
from sandbox_console.backends.bubblewrap.supervise.loop import Loop
from sandbox_console.backends.bubblewrap.supervise.spare import Spare
from sandbox_console.errors import BackendError

OURS = "grep -qs [s]upervisor.py $one/cmdline && ! grep -qs '^PPid:.0$' $one/status"
FIND = f'for one in /proc/[0-9]*; do {OURS} && kill -{{}} "${{{{one#/proc/}}}}"; done; true'
"""Each process of the console's in the sandbox that has a parent there: what waits, below its helper."""


def waiting(box: Box) -> list[int]:
    """The helper that is there before a command is, and below it what is to become the command."""
    for helper in tree.children(box.raw["supervisor"]):
        for command in tree.children(helper):
            with contextlib.suppress(OSError):
                if all(b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (helper, command)):
                    return [helper, command] if status(command)["Seccomp"].strip() == "2" else []
    return []


async def ready(box: Box) -> tuple[int, int]:
    helper, command = await until(lambda: waiting(box))
    return helper, command


def status(pid: int) -> dict[str, str]:
    return dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


async def test_the_next_command_is_what_was_waiting(make: Make) -> None:
    box = await make()
    assert waiting(box) == []
    await box.run("true")
    _, command = await ready(box)
    process = await box.exec("sleep", "60", env={"SEEN": "only now"}, workdir="/tmp")
    assert Path(f"/proc/{command}/cmdline").read_bytes() == b"sleep\x0060\0"
    if ROOT:
        assert b"SEEN=only now" in Path(f"/proc/{command}/environ").read_bytes()
        assert Path(f"/proc/{command}/cwd").readlink() == Path("/tmp")
    await process.kill()


async def test_what_waits_is_confined_and_counts_as_no_process(make: Make) -> None:
    box = await make()
    plain = await box.sh("grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
    helper, command = await ready(box)
    for line in plain.splitlines():
        name, _, value = line.partition(":")
        if name not in ("Uid", "Gid", "Groups"):  # told in the reader's own user namespace
            assert status(command)[name].split() == value.split(), name
    for pid in (helper, command):
        assert {status(pid)[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert status(pid)["NoNewPrivs"].strip() == "1"
        assert os.stat(f"/proc/{pid}/mem").st_uid == 0  # it is not dumpable
        assert not any(str(pid) in Path(f"{group}/cgroup.procs").read_text() for group in box.raw["cgroups"].values())
    if ROOT:
        assert {status(pid)["Uid"].split()[0] for pid in (helper, command)} == {
            status(box.raw["init"])["Uid"].split()[0]
        }
        held = {os.readlink(f"/proc/{command}/fd/{fd}") for fd in os.listdir(f"/proc/{command}/fd")}
        assert not any(one.startswith(("mnt:", "user:", "pid:", "net:")) for one in held)
    assert await box.sh("cat /proc/[0-9]*/environ 2>&1 | grep -a '[s]upervisor'; true") == ""


async def _until_told(process: Any) -> AsyncIterator[tuple[Any, bytes]]:
    async for one in process.output():
        yield one
        return


@pytest.mark.parametrize("signal", ["KILL", "USR1"])
async def test_a_guest_that_kills_it_has_its_next_command_all_the_same(make: Make, signal: str) -> None:
    box = await make()
    for _ in range(3):
        process = await box.exec("sh", "-c", f"sleep 1; {FIND.format(signal)}; echo told; sleep 60")
        there = await ready(box)
        assert [data async for _, data in _until_told(process)] == [b"told\n"]
        await until(lambda gone=there: not any(map(tree.state, gone)))
        await process.kill()
        end, out, _ = await box.run("echo", "next")
        assert (end.code, out) == (0, b"next\n")


async def test_a_guest_that_stops_it_holds_nobody_up(make: Make) -> None:
    box = await make()
    process = await box.exec("sh", "-c", f"sleep 1; {FIND.format('STOP')}; echo told; sleep 60")
    await ready(box)
    assert [data async for _, data in _until_told(process)] == [b"told\n"]
    async with asyncio.timeout(60):
        assert (await box.run("true"))[0].code == 0
    await process.kill()


async def test_a_command_may_stop_itself(make: Make) -> None:
    box = await make()
    for _ in range(2):
        process = await box.exec("sh", "-c", "kill -STOP $$; echo on")
        found = await until(lambda: [p for p in tree.descendants(box.raw["supervisor"]) if tree.state(p) == "T"])
        os.kill(found[0], 18)
        assert [data async for _, data in process.output()] == [b"on\n"]
        await ready(box)


async def test_an_order_too_long_for_it_is_carried_out(make: Make) -> None:
    box = await make()
    await box.run("true")
    await ready(box)
    end, out, _ = await box.run("sh", "-c", 'echo "${#LONG}"', env={"LONG": "\x01é" * 30_000})
    assert (end.code, int(out)) == (0, 90_000)


@pytest.mark.slow
async def test_an_idle_sandbox_has_none(make: Make) -> None:
    box = await make()
    await box.run("true")
    await ready(box)
    await until(lambda: not waiting(box), 40)
    assert (await box.run("true"))[0].code == 0


@pytest.mark.parametrize(("letter", "times"), [("é", 10_900), ("é", 16_000), ("\U0001f600", 10_000)])
async def test_an_order_whose_letters_take_many_bytes_is_carried_out(make: Make, letter: str, times: int) -> None:
    """Fewer characters than a packet has bytes, but more bytes as JSON."""
    box = await make()
    await box.run("true")
    await ready(box)
    end, out, _ = await box.run("sh", "-c", 'printf %s "$LONG"', env={"LONG": letter * times})
    assert (end.code, out) == (0, os.fsencode(letter * times))


async def test_what_waits_is_in_no_list_of_processes(make: Make) -> None:
    box = await make()
    await box.run("true")
    await ready(box)
    record = box.backend._store.get(box.ref.id)
    assert [one.command for one in processes.processes(record)] == ["sleep 2147483647"]
    assert stats.sample(record.raw, box.folder).pids == 1
    process = await box.exec("sleep", "61")
    listed = [one.command for one in processes.processes(record)]
    assert listed == ["sleep 2147483647", "sleep 61"]
    await process.kill()


FORKS = """
import os, sys, time
sys.stdin.readline()
count = 0
try:
    while os.fork():
        count += 1
    time.sleep(60)
except OSError:
    print(count, flush=True)
    time.sleep(60)
"""


async def test_what_waits_takes_no_process_from_the_guest(make: Make) -> None:
    box = await make(pids=16)
    process = await box.exec("python3", "-c", FORKS)
    helper, _command = await ready(box)
    init = box.raw["init"]
    await process.write(b"\n")
    assert [data async for _, data in _until_told(process)]
    theirs = [one for one in tree.children(box.raw["supervisor"]) if one != helper and init not in tree.children(one)]
    assert len(theirs) == 1
    everyone = [init, *tree.descendants(init), *theirs, *tree.descendants(theirs[0])]
    assert len(everyone) >= 16, "as many as where nothing waits"
    await process.kill()


async def test_no_command_survives_its_cancellation(make: Make) -> None:
    box = await make()
    for step in range(120):
        if step % 3:
            await box.run("true")
        starting = asyncio.create_task(box.exec("sleep", "987"))
        await asyncio.sleep(step % 40 * 0.0003)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await starting).kill()
    await until(lambda: not host_pids("sleep\x00987"), 5)


async def test_a_command_without_its_streams_does_not_run(make: Make) -> None:
    box = await make()
    script = (
        "import glob, resource, time\n"
        "time.sleep(0.5)\n"
        "for one in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    if b'supervisor.py\\0' in open(one, 'rb').read():\n"
        "        resource.prlimit(int(one.split('/')[2]), resource.RLIMIT_NOFILE, (0, 0))\n"
        "print('told', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = await box.exec("python3", "-c", script)
    await ready(box)
    assert [data async for _, data in _until_told(process)] == [b"told\n"]
    with pytest.raises(BackendError, match="streams did not arrive"):
        await box.run("echo", "lost")
    assert (await box.run("echo", "here"))[1] == b"here\n"
    await process.kill()


def test_a_descriptor_above_1023_may_wait() -> None:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    ours = tuple(socket.socket(fileno=fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 1500)) for one, _ in pairs)
    spare = Spare(Loop(), lambda: (ours[0], ours[1]))
    spare.prepare()
    assert spare.take({"candidates": []}, [0]) == (0, ours[0])
    message, fds = wire.receive(pairs[1][1])
    assert message == {"candidates": []}
    for one in (*fds, *(sock.detach() for pair in pairs for sock in pair), ours[0].detach()):
        os.close(one)


def test_an_event_of_a_closed_descriptor_is_not_taken_for_its_successors() -> None:
    loop, called = Loop(), []
    first, second = os.pipe(), os.pipe()
    for _, writer in (first, second):
        os.write(writer, b"x")

    def replaces(mine: int, other: int) -> None:
        loop.off(mine)
        loop.off(other)
        os.close(other)
        assert os.dup2(quiet[0], other) == other
        loop.on(other, lambda: called.append(other))

    quiet = os.pipe()
    loop.on(first[0], lambda: replaces(first[0], second[0]))
    loop.on(second[0], lambda: replaces(second[0], first[0]))
    loop.turn()
    assert called == []
    for fd in (*first, *second, *quiet):
        os.close(fd)
