"""Another program holds the database: what takes something from a sandbox goes on, all else says for whom it waits."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.audit.conftest import act

from sandbox_console.audit import lock, query, store, verify
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reserve import Reserve
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.errors import AuditUnavailable, NotFound
from sandbox_console.model.action import Kill, Pause, Resume, Start, Stop
from sandbox_console.model.audit import AuditQuery, Outcome
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend

HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
FLOCK = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""

EMERGENCIES = ("stop", "kill", "pause", "resume", "egress-deny")


class Holder:
    """A process that holds a lock until it is let go."""

    def __init__(self, script, path):
        command = [sys.executable, "-c", script, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout.readline()
        self.pid = self._process.pid

    def release(self):
        self._process.communicate()


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    for name, seconds in (("TELL_S", 0.1), ("WAIT_S", 0.5)):
        monkeypatch.setattr(lock, name, seconds)
        monkeypatch.setattr(store, name, seconds)


async def test_only_what_is_urgent_goes_on_and_all_of_it_is_recorded_afterwards(tmp_path):
    path, told = tmp_path / "audit.db", []
    journal = await Journal.open(path, "test", waits=told.append)
    await act(journal, 3)
    running = await journal.begin("exec", "fake", "box", {})
    holder = Holder(HOLD, path)
    taken = []
    for verb in EMERGENCIES:
        permit = await journal.begin(verb, "fake", "box", {})
        await journal.finish(permit, Outcome.OK, 1, {})
        taken.append(permit.audit_id)
    await journal.finish(running, Outcome.OK, 1, {})
    who = f"process {holder.pid} ({Path(f'/proc/{holder.pid}/comm').read_text().strip()})"
    assert told == [f"{who} has it; what is done is recorded in the reserve"], "said once; nothing of this waits"
    with pytest.raises(AuditUnavailable) as caught:
        await journal.begin("exec", "fake", "box", {})
    assert who in caught.value.message
    assert told[1:] == [f"waiting for {who}"]
    assert "stop" in caught.value.hint
    assert "space" not in caught.value.hint
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert any("wait in the reserve" in limit for limit in found.limits)
    listed = await query.entries(path, AuditQuery(limit=5))
    assert [(one.attempt.seq, one.attempt.action, one.outcome) for one in listed] == [
        (seq, verb, "ok") for seq, verb in zip(reversed(taken), EMERGENCIES[::-1], strict=True)
    ]
    assert (await query.entry(path, running.audit_id)).outcome == "ok", "its end waits in the reserve"
    assert [one.attempt.seq for one in await query.entries(path, AuditQuery(action="kill"))] == [taken[1]]
    assert await query.newest(path) == found.rows
    holder.release()
    await journal.close()
    assert await query.entries(path, AuditQuery(limit=5)) == listed
    assert not Reserve(Layout(path).reserve).holding, "the end of a session is enough"
    found = await verify.verify(path)
    assert (found.ok, found.open_attempts, found.rows) == (True, 0, 8 + 2 * len(taken)), found.problem


async def test_what_waits_goes_on_once_it_is_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "WAIT_S", 30)
    path, told = tmp_path / "audit.db", []
    journal = await Journal.open(path, "test", waits=told.append)
    holder = Holder(HOLD, path)
    waiting = asyncio.create_task(journal.begin("exec", "fake", "box", {}))
    while not told:
        await asyncio.sleep(0.01)
    holder.release()
    await journal.finish(await waiting, Outcome.OK, 1, {})
    await journal.close()
    assert (await verify.verify(path)).ok


async def test_what_is_urgent_goes_on_while_another_action_waits(tmp_path, monkeypatch):
    for module in (lock, store):
        monkeypatch.setattr(module, "WAIT_S", 3600)
    path, told = tmp_path / "audit.db", []
    waiter, urgent = [await Journal.open(path, "test", waits=told.append) for _ in range(2)]
    holder = Holder(HOLD, path)
    waiting = asyncio.create_task(waiter.begin("remove", "fake", "box", {}))
    while not told:
        await asyncio.sleep(0.01)
    for verb in EMERGENCIES:
        await urgent.finish(await urgent.begin(verb, "fake", "box", {}), Outcome.OK, 1, {})
    assert not waiting.done()
    holder.release()
    await waiter.finish(await waiting, Outcome.OK, 1, {})
    for journal in (waiter, urgent):
        await journal.close()
    found = await verify.verify(path)
    assert (found.ok, found.open_attempts) == (True, 0), found.problem


async def test_a_console_that_starts_beside_the_lock_can_still_stop(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    ref = SandboxRef("fake", "local", "box-id-1")
    box = Sandbox(ref, "box", Status.RUNNING, "x", spec=SandboxSpec("box", image="x"))
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        await console.perform(Pause(ref)).result()
        path = console.audit_log.path
    holder = Holder(HOLD, path)
    ids = []
    paused = Sandbox(ref, "box", Status.PAUSED, "x", spec=SandboxSpec("box", image="x"))
    for action, found in ((Stop(ref), box), (Kill(ref), box), (Resume(ref), paused)):
        async with open_console(Config(), backends=[FakeBackend([found])]) as console:
            ids.append((await console.perform(action).result()).audit_id)
            with pytest.raises(AuditUnavailable, match="locked by process"):
                await console.perform(Start(ref)).result()
            assert "locked by process" in console.audit_log.problem
    holder.release()
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        await console.perform(Pause(ref)).result()
        entries = [await console.audit_entry(id_) for id_ in ids]
        assert [(one.attempt.action, one.outcome) for one in entries] == [
            ("stop", "ok"),
            ("kill", "ok"),
            ("resume", "ok"),
        ]
        assert (await console.verify()).ok


async def test_the_logs_own_lock_names_who_holds_it(tmp_path):
    path, told = tmp_path / "audit.db", []
    journal = await Journal.open(path, "test", waits=told.append)
    holder = Holder(FLOCK, Layout(path).lock)
    with pytest.raises(AuditUnavailable) as caught:
        await journal.begin("exec", "fake", "box", {})
    assert f"locked by process {holder.pid} (" in caught.value.message
    assert told[0].startswith(f"waiting for process {holder.pid} (")
    holder.release()
    await act(journal, 1)
    await journal.close()


def cli(*words):
    return subprocess.run(
        [sys.executable, "-m", "sandbox_console", *words], capture_output=True, text=True, check=False, timeout=60
    )


async def are_listed(path, running):
    """What waits is listed before all else, marked, and found by its number; also what ends an attempt in the log."""
    listed = await query.entries(path, AuditQuery(limit=2))
    assert [(one.attempt.placed, one.attempt.action, one.outcome) for one in listed] == [
        (False, "kill", "denied"), *((False, verb, "ok") for verb in reversed(EMERGENCIES)),
        (True, "exec", "ok"), (True, "exec", "ok"),
    ]  # fmt: skip
    assert [one.attempt.seq for one in listed[:6]] == [-11, -9, -7, -5, -3, -1]
    assert listed[6].end.seq == -13
    assert (await query.entry(path, running)).outcome == "ok"
    for number in (-3, -4):
        entry = await query.entry(path, number)
        assert (entry.attempt.seq, entry.attempt.body, entry.end.ref) == (-3, {"told": "kill"}, -3)
    assert [one.attempt.seq for one in await query.entries(path, AuditQuery(action="kill"))] == [-11, -3]
    assert [one.attempt.seq for one in await query.entries(path, AuditQuery(outcome="denied"))] == [-11]
    [older] = await query.entries(path, AuditQuery(before_seq=running, limit=1))
    assert older.attempt.seq < running
    assert older.attempt.placed
    with pytest.raises(NotFound):
        await query.entry(path, -14)


async def test_while_a_console_keeps_the_lock_what_is_urgent_is_recorded_beside_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    monkeypatch.setattr(lock, "WAIT_S", 3600)
    path, told = tmp_path / "audit.db", []
    journal = await Journal.open(path, "test", waits=told.append)
    await act(journal, 3)
    running = await journal.begin("exec", "fake", "box", {})
    holder = Holder(FLOCK, Layout(path).lock)
    for verb in EMERGENCIES:
        permit = await journal.begin(verb, "fake", "box", {"told": verb})
        assert permit.audit_id < 0, "a row has no place yet"
        await journal.finish(permit, Outcome.OK, 1, {})
    await journal.refuse("kill", "fake", "box", {}, Outcome.DENIED, {"rule": "x"})
    await journal.finish(running, Outcome.OK, 1, {})
    who = f"process {holder.pid} ({Path(f'/proc/{holder.pid}/comm').read_text().strip()})"
    assert told[0] == f"waiting for {who}"
    assert told.count(f"{who} has it; what is done is recorded beside it") == 1
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert any(limit.startswith("13 urgent rows wait in sessions/") for limit in found.limits)
    await are_listed(path, running.audit_id)
    holder.release()
    await act(journal, 1)
    await journal.close()
    found = await verify.verify(path)
    assert (found.ok, found.open_attempts) == (True, 0), found.problem
    assert (await query.entry(path, running.audit_id)).outcome == "ok"
    listed = await query.entries(path, AuditQuery(limit=7))
    assert [(one.attempt.action, one.outcome) for one in listed[1:]] == [
        ("kill", "denied"), *((verb, "ok") for verb in reversed(EMERGENCIES)),
    ]  # fmt: skip
    assert not list(Layout(path).sessions.iterdir())


@pytest.mark.parametrize("ended", ["closed", "killed"])
async def test_what_is_recorded_beside_the_log_is_moved_by_the_next_console(ended, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    path = tmp_path / "audit.db"
    await (await Journal.open(path, "first")).close()
    holder = Holder(FLOCK, Layout(path).lock)
    journal = await Journal.open(path, "test")
    permit = await journal.begin("kill", "fake", "box", {})
    if ended == "closed":
        await journal.finish(permit, Outcome.OK, 1, {})
        await asyncio.wait_for(journal.close(), 5)
    else:
        journal._anchoring.cancel()
        journal._summing.cancel()
        os.close(journal._session._fd)
    holder.release()
    await (await Journal.open(path, "next")).close()
    [entry] = await query.entries(path, AuditQuery(action="kill"))
    assert (entry.attempt.actor, entry.outcome) == ("test", "ok" if ended == "closed" else "unknown")
    found = await verify.verify(path)
    assert (found.ok, found.open_attempts) == (True, 0), found.problem
    assert not list(Layout(path).sessions.glob("*.urgent"))


async def test_only_rows_of_a_console_are_moved_and_each_once(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    path = tmp_path / "audit.db"
    await (await Journal.open(path, "first")).close()
    holder = Holder(FLOCK, Layout(path).lock)
    journal = await Journal.open(path, "test")
    await journal.finish(await journal.begin("kill", "fake", "box", {}), Outcome.OK, 1, {})
    await journal.close()
    [file] = Layout(path).sessions.glob("*.urgent")
    genuine = file.read_bytes()
    file.write_bytes(genuine + genuine.splitlines()[0].replace(b'"kill"', b'"stop"') + b"\n" + b"[" * 5000 + b"\n{")
    lock_file = file.with_suffix(".lock").read_bytes()
    holder.release()
    await (await Journal.open(path, "next")).close()
    file.write_bytes(genuine)  # as if the console had died before it could remove the file
    file.with_suffix(".lock").write_bytes(lock_file)
    await (await Journal.open(path, "again")).close()
    assert [one.attempt.action for one in await query.entries(path, AuditQuery(limit=9))] == ["kill"]
    found = await verify.verify(path)
    assert found.problem.endswith("lines in a session's file of urgent rows were not a console's, and were refused")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM record WHERE action = 'urgent-refused'").fetchone() == (1,)


async def test_a_kill_goes_on_while_a_console_is_stopped_with_the_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    monkeypatch.setattr(lock, "WAIT_S", 3600)
    ref = SandboxRef("fake", "local", "box-id-1")
    box = Sandbox(ref, "box", Status.RUNNING, "x", spec=SandboxSpec("box", image="x"))
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        await console.perform(Pause(ref)).result()
        path = console.audit_log.path
    holder = Holder(FLOCK, Layout(path).lock)
    os.kill(holder.pid, signal.SIGSTOP)
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        waiting = asyncio.create_task(console.perform(Start(ref)).result())
        await asyncio.sleep(0)
        await asyncio.wait_for(console.perform(Kill(ref)).result(), 10)  # though another action waits for the lock
        assert not waiting.done()
        assert [(one.attempt.placed, one.outcome) for one in await console.history(AuditQuery(action="kill"))] == [
            (False, "ok")
        ]
        listed = cli("audit", "ls")
        assert re.search(r"^-1 .* kill .* ok \(not placed\)", listed.stdout, re.MULTILINE)
        assert listed.stderr == "note: 1 action not placed in the log yet: another console keeps its lock\n"
        row = json.loads(cli("audit", "ls", "--action", "kill", "--json").stdout)
        assert (row["id"], row["placed"]) == (-1, False)
        assert "outcome -2" in cli("audit", "show", "-1").stdout
        os.kill(holder.pid, signal.SIGCONT)
        holder.release()
        await asyncio.gather(waiting, return_exceptions=True)
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        [entry] = await console.history(AuditQuery(action="kill"))
        assert entry.outcome == "ok"
        assert (await console.verify()).ok


async def test_a_row_whose_attempt_was_moved_belongs_to_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test")
    await act(journal, 1)
    holder = Holder(FLOCK, Layout(path).lock)
    permit = await journal.begin("kill", "fake", "box", {})
    holder.release()
    await act(journal, 1)  # which moves the attempt
    holder = Holder(FLOCK, Layout(path).lock)
    await journal.finish(permit, Outcome.OK, 1, {})
    holder.release()
    await act(journal, 1)
    await journal.close()
    [entry] = await query.entries(path, AuditQuery(action="kill"))
    assert entry.outcome == "ok"
    found = await verify.verify(path)
    assert (found.ok, found.open_attempts) == (True, 0), found.problem


async def test_lines_that_were_moved_before_are_not_moved_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test")
    await act(journal, 1)
    kept = b""
    for verb in ("kill", "stop"):
        holder = Holder(FLOCK, Layout(path).lock)
        await journal.finish(await journal.begin(verb, "fake", "box", {}), Outcome.OK, 1, {})
        [file] = Layout(path).sessions.glob("*.urgent")
        now = file.read_bytes()
        file.write_bytes(now + kept)
        kept = now
        holder.release()
        await act(journal, 1)
    await journal.close()
    assert len(await query.entries(path, AuditQuery(action="kill"))) == 1
    assert len(await query.entries(path, AuditQuery(action="stop"))) == 1
    assert (await verify.verify(path)).ok


async def test_another_sessions_lines_replace_none(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    path = tmp_path / "audit.db"
    await (await Journal.open(path, "first")).close()
    holder = Holder(FLOCK, Layout(path).lock)
    for verb in ("kill", "stop"):
        journal = await Journal.open(path, verb)
        await journal.finish(await journal.begin(verb, "fake", "box", {}), Outcome.OK, 1, {})
        await journal.close()
    stopped, killed = sorted(Layout(path).sessions.glob("*.urgent"), key=lambda file: b'"kill"' in file.read_bytes())
    killed.write_bytes(killed.read_bytes() + stopped.read_bytes())  # whose numbers are the same
    holder.release()
    await (await Journal.open(path, "next")).close()
    listed = await query.entries(path, AuditQuery(limit=9))
    assert sorted((entry.attempt.action, entry.outcome) for entry in listed) == [("kill", "ok"), ("stop", "ok")]
    found = await verify.verify(path)
    assert "were not a console's" in found.problem


@pytest.mark.parametrize("planted", ["link", "pipe", "folder"])
async def test_a_file_of_urgent_rows_that_is_none_is_told(tmp_path, planted):
    path = tmp_path / "audit.db"
    await (await Journal.open(path, "first")).close()
    file = Layout(path).urgent("0123456789abcdef")
    {"link": lambda: file.symlink_to(path), "pipe": lambda: os.mkfifo(file), "folder": file.mkdir}[planted]()
    async with asyncio.timeout(20):
        await (await Journal.open(path, "next")).close()
        found = await verify.verify(path)
    assert any(f"cannot be read in sessions/{file.name}" in limit for limit in found.limits)


async def test_ends_whose_attempts_were_cut_out_block_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    path = tmp_path / "audit.db"
    await (await Journal.open(path, "first")).close()
    holder = Holder(FLOCK, Layout(path).lock)
    for verb in ("kill", "stop"):
        journal = await Journal.open(path, verb)
        await journal.finish(await journal.begin(verb, "fake", "box", {}), Outcome.OK, 1, {})
        await journal.close()
    for file in Layout(path).sessions.glob("*.urgent"):
        file.write_bytes(file.read_bytes().splitlines(keepends=True)[1])
    holder.release()
    journal = await Journal.open(path, "next")
    await act(journal, 1)
    await journal.close()
    assert not list(Layout(path).sessions.iterdir())
    with closing(sqlite3.connect(path)) as db:
        sql = "SELECT action, ref FROM record WHERE kind = 'outcome' ORDER BY action"
        assert db.execute(sql).fetchall()[1:] == [("kill", None), ("stop", None)]


@pytest.mark.parametrize("cut", ["the file", "its last line", "its first line"])
@pytest.mark.parametrize("ended", ["running", "gone"])
async def test_urgent_rows_that_are_removed_are_missed(tmp_path, monkeypatch, cut, ended):
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    path = tmp_path / "audit.db"
    await (await Journal.open(path, "first")).close()
    holder = Holder(FLOCK, Layout(path).lock)
    journal = await Journal.open(path, "test")
    await journal.finish(await journal.begin("kill", "fake", "box", {}), Outcome.OK, 1, {})
    if ended == "gone":
        await journal.close()
    [file] = Layout(path).sessions.glob("*.urgent")
    lines = file.read_bytes().splitlines(keepends=True)
    if cut == "the file":
        file.unlink()
    else:
        file.write_bytes(lines[0] if cut == "its last line" else lines[1])
    found = await verify.verify(path)
    assert found.problem == f"urgent rows are missing in sessions/{file.name}: {2 if cut == 'the file' else 1} of 2"
    holder.release()
    journal = journal if ended == "running" else await Journal.open(path, "next")
    await act(journal, 1)
    await journal.close()
    found = await verify.verify(path)
    assert found.problem.endswith("urgent rows that a console had written beside the log were missing")
    with closing(sqlite3.connect(path)) as db:
        told = db.execute("SELECT body FROM record WHERE action = 'urgent-missing'").fetchall()
    assert [json.loads(body) for [body] in told] == [{"file": file.name, "rows": 2 if cut == "the file" else 1}]


async def test_a_line_of_a_sealed_segment_is_not_moved_again(tmp_path, monkeypatch):
    """What was recorded once would be done a second time, according to the log."""
    monkeypatch.setattr(lock, "URGENT_S", 0.3)
    path, small = tmp_path / "audit.db", RetentionPolicy(segment_bytes=64 * 1024)
    journal = await Journal.open(path, "test", small)
    await act(journal, 1)
    holder = Holder(FLOCK, Layout(path).lock)
    await journal.finish(await journal.begin("kill", "fake", "box", {}), Outcome.OK, 1, {})
    [file] = Layout(path).sessions.glob("*.urgent")
    kept = file.read_bytes()
    holder.release()
    while len(Layout(path).indices()) < 3:
        await act(journal, 20)
    file.write_bytes(kept)
    await act(journal, 1)
    await journal.close()
    assert not file.exists()
    assert len(await query.entries(path, AuditQuery(action="kill"))) == 1
    found = await verify.verify(path)
    assert found.ok, found.problem
