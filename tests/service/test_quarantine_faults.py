"""A quarantine on a full disk, killed at each step, with damaged holds and with two consoles: it never ends by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import pytest
from msgspec import structs
from tests.audit.test_full_disk import disk, fill, make_room  # noqa: F401 - a fixture

from sandbox_console.errors import BackendError, Conflict, ConsoleError, Denied
from sandbox_console.hostfs import own_files
from sandbox_console.model.action import Exec, Quarantine, Release
from sandbox_console.model.egress import Effect, EgressRule
from sandbox_console.model.quarantine import Hold
from sandbox_console.model.sandbox import Status
from sandbox_console.service import Config, open_console
from sandbox_console.service.gate import quarantine_store
from sandbox_console.service.gate.quarantine_store import Holds
from sandbox_console.testing.fake_backend import FakeBackend

from .conftest import REF

HOLD = Hold(str(REF), "box", "user:me", "odd", 1.0, frozen=True, rules=(EgressRule("a.example", Effect.ALLOW),))


def killed(step, work):
    """Whether a process was killed before it had run ``step`` lines of the hold's work."""
    pid = os.fork()
    if pid == 0:
        left = step

        def trace(frame, event, _):
            nonlocal left
            if frame.f_code.co_filename not in (quarantine_store.__file__, own_files.__file__):
                return None
            left -= event == "line"
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        with suppress(BaseException):
            work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def steps_of(prepare, work, check):
    """Kill the work at each of its lines, and check what is left. Returns how many lines it has."""
    step = 0
    while True:
        prepare()
        was_killed = killed(step, work)
        check(was_killed)
        if not was_killed:
            return step
        step += 1


def test_a_kill_at_each_step_of_a_change_leaves_the_hold_of_before_or_the_new_one(tmp_path):
    holds = Holds(tmp_path / "quarantine")
    more = structs.replace(HOLD, reason="worse")

    def check(was_killed):
        assert holds.get(REF) in ((HOLD, more) if was_killed else (more,))

    assert steps_of(lambda: holds.put(HOLD), lambda: holds.put(more), check) > 20


def test_a_kill_at_each_step_of_a_damaged_holds_replacement_leaves_it_held(tmp_path):
    holds = Holds(tmp_path / "quarantine")

    def prepare():
        holds._folder.mkdir(exist_ok=True)
        holds._path(str(REF)).write_bytes(b"{")

    def check(was_killed):
        assert holds.get(REF) is not None
        if not was_killed:
            assert holds.get(REF) == HOLD
            assert b"{" in [path.read_bytes() for path in holds._folder.glob("*.damaged*")]

    assert steps_of(prepare, lambda: holds.put(HOLD), check) > 20


def test_a_kill_at_each_step_of_a_release_leaves_it_held_or_released_whole(tmp_path):
    holds = Holds(tmp_path / "quarantine")

    def check(was_killed):
        assert holds.get(REF) in ((HOLD, None) if was_killed else (None,))

    assert steps_of(lambda: holds.put(HOLD), lambda: holds.drop(REF, holds.stamp(REF)), check) > 10


@pytest.fixture
def fake(box):
    return FakeBackend([box])


async def test_a_damaged_hold_holds_is_marked_and_its_release_is_said(home, fake):
    async with open_console(Config(), backends=[fake]) as console:
        await console.perform(Quarantine(REF, "odd")).result()
        path = console.holds._path(str(REF))
        path.write_bytes(b"\0" * 100)
        async with open_console(Config(), backends=[fake]) as other:
            listed = await other.inspect(REF)
            assert "is damaged" in listed.quarantine
            with pytest.raises(Denied, match="is damaged"):
                await other.perform(Exec(REF, ("true",))).result()
            result = await other.perform(Release(REF)).result()
            assert "is damaged" in result.details["was"]
        assert path.with_name(f"{path.name}.damaged").read_bytes() == b"\0" * 100
        listed = await console.inspect(REF)
        assert listed.quarantine == ""


async def test_a_folder_that_is_none_refuses_what_a_quarantine_would(home, fake):
    async with open_console(Config(), backends=[fake]) as console:
        await console.perform(Quarantine(REF, "odd")).result()
        folder = home / "state" / "quarantine"
        folder.rename(folder.with_name("elsewhere"))
        folder.write_text("no folder\n")
        with pytest.raises(ConsoleError, match="cannot be read"):
            await console.perform(Exec(REF, ("true",))).result()


async def test_on_a_full_disk_it_is_held_and_frozen_all_the_same(disk, fake, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(disk))
    async with open_console(Config(), backends=[fake]) as console:
        await console.perform(Exec(REF, ("true",))).result()
        fill(disk)
        result = await console.perform(Quarantine(REF, "odd")).result()
        steps = {step["what"]: step for step in result.details["steps"]}
        assert steps["freeze"]["done"]
        listed = await console.inspect(REF)
        assert (listed.status, bool(listed.quarantine)) == (Status.PAUSED, True), steps
        async with open_console(Config(), backends=[fake]) as other:
            with pytest.raises(ConsoleError):
                await other.perform(Exec(REF, ("true",))).result()
        make_room(disk)
        with pytest.raises(Denied, match="in quarantine"):
            await console.perform(Exec(REF, ("true",))).result()


def test_a_full_disk_changes_nothing_about_a_hold(disk):  # noqa: F811
    holds = Holds(disk / "quarantine")
    holds.put(HOLD)
    fill(disk)
    with pytest.raises(ConsoleError, match="No space left"):
        holds.put(structs.replace(HOLD, reason="x" * 100_000))
    assert holds.get(REF) == HOLD


async def test_a_release_does_not_end_a_quarantine_that_began_meanwhile(home, fake):
    async with (
        open_console(Config(), backends=[fake]) as one,
        open_console(Config(), backends=[fake]) as two,
    ):
        await one.perform(Quarantine(REF, "first")).result()
        going, go_on = asyncio.Event(), asyncio.Event()
        resume = fake.resume

        async def slow(permit, ref):
            going.set()
            await go_on.wait()
            await resume(permit, ref)

        fake.resume = slow
        releasing = asyncio.create_task(one.perform(Release(REF)).result())
        await going.wait()
        again = asyncio.create_task(two.perform(Quarantine(REF, "second")).result())
        async with asyncio.timeout(10):
            while (hold := two.holds.get(REF)) is None or hold.reason != "second":
                await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises((Conflict, BackendError)):
            await releasing
        await again
        assert two.holds.get(REF).reason == "second"
        listed = await two.inspect(REF)
        assert (listed.status, listed.quarantine[:23]) == (Status.PAUSED, "in quarantine: second (")


async def test_two_quarantines_at_once_keep_what_the_release_needs(home, fake):
    async with (
        open_console(Config(), backends=[fake]) as one,
        open_console(Config(), backends=[fake]) as two,
    ):
        await asyncio.gather(*(console.perform(Quarantine(REF, "odd")).result() for console in (one, two) * 3))
        hold = two.holds.get(REF)
        assert (hold.frozen, hold.damaged) == (True, False)
        await one.perform(Release(REF)).result()
        listed = await two.inspect(REF)
        assert (listed.status, listed.quarantine) == (Status.RUNNING, "")
        assert not list((home / "state" / "quarantine").glob("*.part"))
