"""The process that keeps time limits, killed at each step, with clocks that jump, a full disk and an engine away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docker.test_lifetime_files import end, ended, home, keeper, kept, rows, spec, until
from tests.support.require import requires

from sandbox_console import ConsoleError, open_console

__all__ = ["home"]

pytestmark = requires("docker")

# Python runs this before anything else, in the keeper alone: it kills it once where the test says, and moves its clock.
FAULTS = """
import os, signal, sys, threading, time

folder, spot = os.environ["PYTHON_FAULTS"], os.environ.get("PYTHON_KILLED_AT", "")

def look(frame, event, _):
    if f"{event} {frame.f_code.co_qualname}" == spot:
        try:
            os.close(os.open(folder + "/killed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

def moved(real=time.time):
    try:
        with open(folder + "/moved") as file:
            return real() + float(file.read())
    except OSError:
        return real()

if "keeper" in sys.orig_argv:
    time.time = moved
    if spot and not os.path.exists(folder + "/killed"):
        sys.setprofile(look)
        threading.setprofile(look)
"""
DAY_S = 86400


@pytest.fixture
def faults(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "sitecustomize.py").write_text(FAULTS)
    monkeypatch.setenv("PYTHON_FAULTS", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "spot",
    [
        "call serve", "call LifetimeKeeper._adopt", "call LifetimeKeeper._turn", "call LifetimeKeeper._look", "call LifetimeKeeper._end",
        "call Recorder.__call__", "call Recorder._begun", "call _stopped", "return _stopped", "call Journal.finish",
        "return Journal.finish", "call LifetimeKeeper._quiet",
    ],
)  # fmt: skip
async def test_killed_at_any_step_the_next_one_ends_what_is_over_and_records_it(
    home, faults, monkeypatch, spot
) -> None:
    monkeypatch.setenv("PYTHON_KILLED_AT", spot)
    async with open_console(backend="docker") as console:
        box = await console.create(spec("cut", max_duration_s=2))
    await until((faults / "killed").exists, "it is killed there")
    async with open_console(backend="docker") as console:
        box = await console.sandbox(box.ref)
        assert (await ended(console, box)).exit.reason == "max_duration_s ran out"
        await until(lambda: not kept(home, box.ref.id)["unrecorded"], "its end is on record")
        found = [(str(row.outcome), row.attempt.body["reason"]) for row in await rows(console, box.ref)]
        assert ("ok", "max_duration_s ran out") in found, found
        assert {outcome for outcome, _ in found} <= {"ok", "unknown"}, found
        assert (await console._console.verify()).ok
        await box.remove(force=True)


@pytest.mark.parametrize("when", ["before", "while it runs"])
@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
async def test_a_time_of_day_that_jumps_moves_no_deadline(home, faults, when, jump_s) -> None:
    if when == "before":  # as that of an engine on a machine whose clock is wrong
        (faults / "moved").write_text(str(jump_s))
    async with open_console(backend="docker") as console, console.create(spec("clock", max_duration_s=3)) as box:
        await until(lambda: kept(home, box.ref.id)["run"], "it is taken up")
        (faults / "moved").write_text(str(jump_s))
        found = await ended(console, box)
        assert found.exit.reason == "max_duration_s ran out"
        assert found.finished_at - found.started_at >= 2.9


@pytest.fixture
def small(home, monkeypatch):
    """The console's home on a disk of 16 MiB."""
    where = home / "small"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", where], check=True)
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(where))
    yield where
    for pid in filter(None, [keeper(where)]):
        end(pid)
    subprocess.run(["umount", "-l", where], check=True)


@pytest.mark.slow
async def test_a_full_disk_holds_no_end_back_also_where_the_keeper_dies_on_it(small, docker_engine) -> None:
    async with open_console(backend="docker") as console:
        boxes = [await console.create(spec(f"full{seconds}", max_duration_s=seconds)) for seconds in (3, 9)]
        await until(lambda: all(kept(small, box.ref.id)["run"] for box in boxes), "they are taken up")
    try:
        with (small / "filler").open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 65536)
                file.flush()
        with (small / "filler2").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0")
        with pytest.raises(ConsoleError):
            async with open_console(backend="docker") as console:
                await console.create(spec("nowhere", max_duration_s=5))
        assert "nowhere" not in docker_engine.docker("ps", "-a", "--format", "{{.Names}}").split()
        first, second = (box.ref.id for box in boxes)
        await until(lambda: not docker_engine.inspect(first)["State"]["Running"], "the first is ended")
        end(keeper(small))
        subprocess.run([sys.executable, "-m", "sandbox_console", "ls", "--backend", "docker"], check=True)
        await until(lambda: not docker_engine.inspect(second)["State"]["Running"], "the second is ended")
    finally:
        for name in ("filler", "filler2"):
            (small / name).unlink(missing_ok=True)
    async with open_console(backend="docker") as console:
        for box in boxes:
            await until(lambda box=box: not kept(small, box.ref.id)["unrecorded"], "it is recorded when it can be")
            found = await console.sandbox(box.ref)
            assert (await found.inspect()).exit.reason == "max_duration_s ran out"
            await found.remove(
                force=True
            )  # what was written into the log's reserve comes into the log with the next row
            outcomes = [str(row.outcome) for row in await rows(console, box.ref)]
            assert "ok" in outcomes, outcomes
            assert {"ok", "unknown", ""} >= set(outcomes), outcomes  # it was killed between an end and its record


@pytest.mark.slow
async def test_an_engine_that_is_restarted_finds_its_deadlines_kept(home, docker_engine) -> None:
    async with open_console(backend="docker") as console:
        over = await console.create(spec("over", max_duration_s=3))
        later = await console.create(spec("later", max_duration_s=600))
        await until(lambda: kept(home, later.ref.id)["run"], "both are taken up")
        before, began = keeper(home), kept(home, later.ref.id)["began_s"]
    docker_engine.crash()
    try:
        await asyncio.sleep(3.5)
    finally:
        docker_engine.start()
    async with open_console(backend="docker") as console:
        found = await ended(console, await console.sandbox(over.ref))
        assert found.exit.reason == "max_duration_s ran out"
        assert keeper(home) == before, "it waited for the engine"
        assert kept(home, later.ref.id)["began_s"] == began, "a restart of the engine gives no more time"
        for box in (over, later):
            await (await console.sandbox(box.ref)).remove(force=True)


async def test_the_doctor_tells_of_it(home) -> None:
    (home / "config.toml").write_text(
        "[backends.bubblewrap]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
    )

    def told() -> str:
        words = [sys.executable, "-m", "sandbox_console", "doctor"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return "".join(line for line in done.stdout.splitlines() if "lifetimes" in line)

    assert told() == ""
    async with open_console(backend="docker") as console, console.create(spec("held", max_duration_s=600)):
        await until(lambda: keeper(home), "it runs")
        line = told()
        assert line.startswith("ok "), line
        assert f"process {keeper(home)} holds 1 " in line
        os.kill(keeper(home), signal.SIGSTOP)
        try:
            line = told()
        finally:
            os.kill(keeper(home), signal.SIGCONT)
        assert line.startswith("warning "), line
        assert "no keeper enforces" in line
