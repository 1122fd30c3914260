"""Time limits of containers: kept by a process of their own, whatever becomes of consoles, engines and clocks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console import SandboxSpec, open_console
from sandbox_console.backends.docker.lifetime_files import LifetimeFiles
from sandbox_console.errors import BackendError, Conflict
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.sandbox import Status

pytestmark = requires("docker")


@pytest.fixture
def home(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")
    yield tmp_path
    for file in lifetimes_of(tmp_path).glob("*.json"):
        subprocess.run(["docker", "-H", engine.url, "rm", "-fv", file.stem], check=False, capture_output=True)
    if pid := keeper(tmp_path):
        gone(pid)


def lifetimes_of(home: Path) -> Path:
    return home / "state/backends/docker/lifetimes"


def keepers(home: Path) -> list[int]:
    """The processes that keep for this home, off /proc: what a console thinks of them is what is tested."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            if b"keeper" in words and os.fsencode(home / "state/backends/docker") in words and lives(int(entry.name)):
                found.append(int(entry.name))
    return found


def lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def keeper(home: Path) -> int:
    found = keepers(home)
    assert len(found) <= 1, found
    return found[0] if found else 0


def gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while (
        Path(f"/proc/{pid}/stat").exists()
        and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    ):
        assert time.monotonic() < deadline, "the keeper does not end"
        time.sleep(0.05)


def end(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
    gone(pid)


async def until(ready, what: str) -> None:
    async with asyncio.timeout(60):
        while not ready():
            await asyncio.sleep(0.05)


async def ended(console, box):
    async with asyncio.timeout(60):
        while (found := await box.inspect()).status in (Status.RUNNING, Status.PAUSED, Status.STOPPING):
            await asyncio.sleep(0.05)
    return found


def spec(name: str, **fields) -> SandboxSpec:
    return SandboxSpec(name, image=IMAGE, command=("sleep", "1000"), **fields)


async def rows(console, ref) -> list:
    return [
        one for one in await console.history(AuditQuery(target=str(ref))) if one.attempt.actor.startswith("keeper:")
    ]


async def test_what_its_keeper_ended_says_so_and_is_on_record(home) -> None:
    async with open_console(backend="docker") as console:
        async with console.create(spec("told", max_duration_s=1)) as box:
            found = await ended(console, box)
            assert found.exit.reason == "max_duration_s ran out"
            async with asyncio.timeout(30):
                while not (kept := await rows(console, box.ref)) or not kept[0].outcome:
                    await asyncio.sleep(0.05)
            assert [(one.attempt.actor, one.attempt.action, one.outcome) for one in kept] == [
                ("keeper:docker/default", "stop", "ok")
            ]
            assert kept[0].attempt.body["reason"] == "max_duration_s ran out"
            pid = keeper(home)
            assert pid
        await until(lambda: not keeper(home), "it ends when nothing is left")


async def test_it_holds_though_no_console_is_open_and_the_engine_froze_meanwhile(home, docker_engine) -> None:
    async with open_console(backend="docker") as console:
        box = await console.create(spec("frozen", max_duration_s=3))
        docker_engine.freeze()
    try:
        await asyncio.sleep(4)
    finally:
        docker_engine.thaw()
    async with open_console(backend="docker") as console:
        found = await ended(console, await console.sandbox(box.ref))
        assert found.exit.reason == "max_duration_s ran out"
        assert found.finished_at - found.started_at < 60
        await (await console.sandbox(box.ref)).remove(force=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_keeper_that_was_ended_is_started_again_and_takes_up_what_runs(home, number) -> None:
    async with open_console(backend="docker") as console:
        box = await console.create(spec("adopted", max_duration_s=4))
        await until(lambda: kept(home, box.ref.id).get("run"), "it takes it up")
        before = kept(home, box.ref.id)
        end(keeper(home), number)
        await asyncio.sleep(4.2)
        assert (await box.inspect()).status is Status.RUNNING, "something else ended it"
        facts = {one.field: one for one in (await box.inspect()).effective}
        assert not facts["max_duration_s"].enforced
    async with open_console(backend="docker") as console:
        box = await console.sandbox(box.ref)
        assert (await ended(console, box)).exit.reason == "max_duration_s ran out"
        assert kept(home, box.ref.id)["began_s"] == before["began_s"], "it began anew"
        await box.remove(force=True)


async def test_consoles_at_once_start_one(home) -> None:
    async with open_console(backend="docker") as console:
        box = await console.create(spec("one", max_duration_s=600))
        end(keeper(home))
    words = [sys.executable, "-m", "sandbox_console", "ls", "--backend", "docker", "-q"]
    many = [await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE) for _ in range(5)]
    for one in many:
        await one.communicate()
    await until(lambda: keeper(home), "one is there")
    async with open_console(backend="docker") as console:
        box = await console.sandbox(box.ref)
        async with asyncio.timeout(60):  # it is there before it says that it keeps
            while not (fact := {one.field: one for one in (await box.inspect()).effective}["max_duration_s"]).enforced:
                await asyncio.sleep(0.1)
        assert str(keeper(home)) in fact.note
        await box.remove(force=True)


async def test_a_label_gives_nobody_a_lifetime(home, docker_engine) -> None:
    """Neither an image's labels, as one that was committed with them, nor those of a container of someone else's."""
    async with open_console(backend="docker") as console:
        box = await console.create(spec("mine", max_duration_s=2))
        labels = docker_engine.inspect(box.ref.id)["Config"]["Labels"]
        words = [f"--label={key}={value}" for key, value in labels.items()]
        other = docker_engine.docker("run", "-d", "--network=none", *words, IMAGE, "sleep", "1000")
        try:
            await ended(console, box)
            await asyncio.sleep(1)
            assert docker_engine.inspect(other)["State"]["Running"], "a label ended it"
            shown = await (await console.sandbox(structs.replace(box.ref, id=other))).inspect()
            assert [one.enforced for one in shown.effective if one.field == "max_duration_s"] == [False]
            docker_engine.docker("kill", other)
            with pytest.raises(Conflict, match="no record"):
                await (await console.sandbox(shown.ref)).start()
        finally:
            docker_engine.docker("rm", "-f", other)
            await box.remove(force=True)


@pytest.mark.slow
async def test_commands_output_and_pauses_hold_off_the_idle_timeout(home) -> None:
    async with open_console(backend="docker") as console:
        talks = await console.create(
            SandboxSpec(
                "talks",
                IMAGE,
                ("sh", "-c", "for i in 1 2 3 4 5 6; do sleep 1; echo $i; done; sleep 1000"),
                idle_timeout_s=3,
            )
        )
        rests = await console.create(spec("rests", idle_timeout_s=3))
        await rests.pause()
        worked = await talks.exec("sleep 5; echo done")
        assert worked.text == "done\n"
        assert (await rests.inspect()).status is Status.PAUSED
        await rests.resume()
        assert (await ended(console, talks)).exit.reason == "idle_timeout_s ran out"
        assert (await ended(console, rests)).exit.reason == "idle_timeout_s ran out"
        shown = await talks.inspect()
        assert shown.finished_at - shown.started_at > 8.5, "its output did not count"
        await talks.remove()
        await rests.remove()


async def test_a_paused_one_is_ended_too(home) -> None:
    async with open_console(backend="docker") as console, console.create(spec("paused", max_duration_s=2)) as box:
        await box.pause()
        assert (await ended(console, box)).exit.reason == "max_duration_s ran out"


async def test_a_second_life_is_as_long_as_the_first(home) -> None:
    async with open_console(backend="docker") as console, console.create(spec("again", max_duration_s=2)) as box:
        await ended(console, box)
        await box.start()
        assert (await box.inspect()).status is Status.RUNNING
        assert (await box.inspect()).exit is None
        found = await ended(console, box)
        assert found.finished_at - found.started_at >= 1.9
        assert found.exit.reason == "max_duration_s ran out"


async def test_an_end_by_itself_is_not_its_keepers(home) -> None:
    short = SandboxSpec("short", IMAGE, ("true",), max_duration_s=600)
    async with open_console(backend="docker") as console, console.create(short) as box:
        assert (await ended(console, box)).exit.reason == ""
        assert await rows(console, box.ref) == []


async def test_nothing_is_made_where_its_lifetime_cannot_be_kept(home, docker_engine) -> None:
    folder = lifetimes_of(home)
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    async with open_console(backend="docker") as console:
        with pytest.raises(BackendError, match="lifetime"):
            await console.create(spec("nowhere", max_duration_s=5))
        assert "nowhere" not in docker_engine.docker("ps", "-a", "--format", "{{.Names}}").split()


async def test_no_sandbox_starts_beside_a_keeper_that_cannot_be_had(home, monkeypatch) -> None:
    from sandbox_console.backends.docker import keeper_process

    monkeypatch.setattr(keeper_process, "START_S", 0.5)
    monkeypatch.setattr(keeper_process.sys, "executable", "/bin/false")
    async with open_console(backend="docker") as console:
        with pytest.raises(BackendError, match="keeper"):
            await console.create(spec("alone", max_duration_s=5))
        loose = spec("loose", max_duration_s=5, limits="best-effort")
        async with console.create(loose) as box:
            assert (await box.inspect()).status is Status.RUNNING
            assert [one.enforced for one in (await box.inspect()).effective if one.field == "max_duration_s"] == [False]


@pytest.mark.slow
async def test_a_log_that_cannot_be_written_holds_no_end_back(home) -> None:
    async with open_console(backend="docker") as console:
        box = await console.create(spec("late", max_duration_s=3))
    audit, aside = home / "state/audit", home / "state/audit.aside"
    audit.rename(aside)
    audit.write_text("in the way")
    await until(lambda: kept(home, box.ref.id).get("why"), "it is ended")
    await asyncio.sleep(1)
    assert kept(home, box.ref.id)["unrecorded"]
    audit.unlink()
    aside.rename(audit)
    await until(lambda: not kept(home, box.ref.id)["unrecorded"], "it is recorded when it can be")
    async with open_console(backend="docker") as console:
        box = await console.sandbox(box.ref)
        [row] = await rows(console, box.ref)
        assert row.attempt.body["late"]
        assert (await box.inspect()).exit.reason == "max_duration_s ran out"
        await box.remove()


def kept(home: Path, id: str) -> dict:
    return json.loads((lifetimes_of(home) / f"{id}.json").read_text())


def test_what_is_no_lifetime_of_ours_is_none(tmp_path) -> None:
    files = LifetimeFiles(tmp_path / "x")
    own = "a" * 64
    files.add(own, "engine", SandboxSpec("a", "b", max_duration_s=1))
    assert [one.id for one in files.all("engine")] == [own]
    assert files.all("another engine") == []
    (tmp_path / "x" / f"{'b' * 64}.json").write_text((tmp_path / "x" / f"{own}.json").read_text())
    (tmp_path / "x" / "c.json").symlink_to("/etc/passwd")
    (tmp_path / "x" / f"{'d' * 64}.json").write_text("[" * 5000)
    assert [one.id for one in files.all("engine")] == [own], "a file speaks for its own container alone"
    for odd in ("../../etc/passwd", "", "x" * 64):
        assert files.get(odd) is None
