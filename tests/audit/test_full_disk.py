"""A disk without room: what takes something from a sandbox still works and is on record, nothing else happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from tests.audit.conftest import act

from sandbox_console.audit import query, verify
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reserve import Reserve
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.action import Pause, Start, Stop
from sandbox_console.model.audit import AuditQuery, Outcome
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend

REF = SandboxRef("fake", "local", "box-id-1")


@pytest.fixture
def disk(tmp_path):
    """An ext4 file system of 24 MiB on a loop device.

    Its blocks are 4096 bytes, as those of any larger one: SQLite makes sure of each page of its shared memory by one
    byte, and with blocks of 1024 the kernel ends a process (SIGBUS) that writes to the rest of a page on a full disk.
    """
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    image, where = tmp_path / "image", tmp_path / "disk"
    image.touch()
    os.truncate(image, 24 * 1024 * 1024)
    where.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(where)], check=True)
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def fill(where):
    """Write until not a byte more goes in."""
    with (where / "flood").open("ab", buffering=0) as file:
        for size in (65536, 512, 1):
            while True:
                try:
                    if not file.write(b"x" * size):
                        break
                except OSError:
                    break


def make_room(where):
    (where / "flood").unlink()
    os.sync()  # its blocks are free only once the file system's journal is committed


async def test_only_what_is_urgent_is_taken_and_all_of_it_is_kept(disk):
    path = disk / "audit.db"
    journal = await Journal.open(path, "test")
    ids = await act(journal, 20)
    running = await journal.begin("exec", "fake", "box", {})
    fill(disk)
    taken = []
    for _ in range(40):
        for verb in ("stop", "kill", "pause", "egress-deny"):
            permit = await journal.begin(verb, "fake", "box", {"why": "x" * 200})
            await journal.finish(permit, Outcome.OK, 1, {})
            taken.append(permit.audit_id)
    await journal.finish(running, Outcome.FAILED, 1, {"code": "x"})
    assert Reserve(Layout(path).reserve).holding
    with pytest.raises(AuditUnavailable, match="full"):
        await journal.begin("exec", "fake", "box", {})
    assert (await query.entry(path, ids[3])).outcome == "ok", "reads go on"
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert any("wait in the reserve" in limit for limit in found.limits)
    make_room(disk)
    again = await act(journal, 3)
    assert not Reserve(Layout(path).reserve).holding
    await journal.close()
    found = await verify.verify(path)
    assert found.ok, found.problem
    kept = {one.attempt.seq: one for one in await query.entries(path, AuditQuery(limit=10_000))}
    assert {*ids, *taken, *again, running.audit_id} == kept.keys()
    assert all(one.end for one in kept.values())


async def test_a_console_that_starts_on_a_full_disk_can_still_stop(disk, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(disk))
    box = Sandbox(REF, "box", Status.RUNNING, "x", spec=SandboxSpec("box", image="x"))
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        await console.perform(Pause(REF)).result()
    fill(disk)
    backend = FakeBackend([box])
    async with open_console(Config(), backends=[backend]) as console:
        done = await console.perform(Stop(REF)).result()
        with pytest.raises(AuditUnavailable) as caught:
            await console.perform(Start(REF)).result()
        assert "full" in caught.value.message
        assert "stop" in caught.value.hint
    assert [permit.verb for permit in backend.permits] == ["stop"]
    make_room(disk)
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        await console.perform(Stop(REF)).result()
        entry = await console.audit_entry(done.audit_id)
        assert (entry.attempt.action, entry.outcome) == ("stop", "ok")
        found = await console.verify()
        assert found.ok, found.problem


def test_the_command_line_stops_a_sandbox_whose_flood_filled_the_disk(disk):
    env = os.environ | {"SANDBOX_CONSOLE_HOME": str(disk)}

    def console(*words):
        command = [sys.executable, "-m", "sandbox_console", "--backend", "bubblewrap", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)

    flood = "while :; do head -c 1000000 /dev/zero; done"
    made = console("create", "flood", "--image", "host", "--", "sh", "-c", flood)
    assert made.returncode == 0, made.stderr
    try:
        fill(disk)
        refused = console("exec", "flood", "--", "true")
        stopped = console("stop", "flood")
        assert stopped.returncode == 0, stopped.stderr
        assert '"status": "exited"' in console("ls", "--all", "--json").stdout
        fill(disk)
        looked = console("doctor")
        room = re.search(r"audit\.db (is full|has [\d.]+ Ki?B left)", looked.stdout)
        assert room is not None, looked.stdout
        assert looked.returncode == (room[1] == "is full"), looked.stdout
        assert refused.returncode in (0, 125), "the log's own writer may have left room for one more row"
    finally:
        make_room(disk)
        console("rm", "--force", "flood")
    assert "ok:" in console("audit", "verify").stdout


def test_a_read_only_state_is_looked_at_and_changes_are_refused_as_not_recordable(disk):
    env = os.environ | {"SANDBOX_CONSOLE_HOME": str(disk)}

    def console(*words):
        command = [sys.executable, "-m", "sandbox_console", "--backend", "bubblewrap", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)

    def remount(how):
        subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

    made = console("create", "box", "--image", "host", "--no-start")
    if made.returncode == 2:
        made = console("create", "box", "--image", "host", "--", "true")
    assert made.returncode == 0, made.stderr
    os.sync()
    remount("ro")
    try:
        assert console("ls", "--all").returncode == 0
        done = {verb: console(verb, "box", *more) for verb, more in (("start", ()), ("rm", ("--force",)))}
        done["create"] = console("create", "other", "--image", "host")
        assert {verb: one.returncode for verb, one in done.items()} == dict.fromkeys(done, 6), done
    finally:
        remount("rw")
    assert console("rm", "--force", "box").returncode == 0
