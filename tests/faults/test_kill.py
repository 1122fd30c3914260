from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox_console.audit import query, verify
from sandbox_console.audit.journal import Journal
from sandbox_console.model.audit import AuditQuery, Outcome

HERE = Path(__file__).parent


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    return tmp_path


def console(slow_s: float = 30) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "slow_console.py"), str(slow_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_when(process: subprocess.Popen[str], after: str, delay_s: float) -> list[str]:
    """Read until a line begins with ``after``, wait, kill -9; gives every line that was promised."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith(after):
            break
    time.sleep(delay_s)
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.read().split("\n")[:-1]
    process.stdout.close()
    process.wait()
    return lines


async def test_kill_9_twenty_times_loses_nothing(home):
    db = home / "state" / "audit" / "audit.db"
    live = await Journal.open(db, actor="live")
    mine = await live.begin("exec", "fake", "mine", {})
    chance = random.Random(1)
    promised: set[int] = set()
    ended: set[int] = set()
    kills = 0
    for _ in range(10):
        # Half are killed in the midst of the slow action, half anywhere in a run of quick ones.
        slow = [console(), console(0)]
        for process, after in zip(slow, ("attempt", "done"), strict=True):
            lines = kill_when(process, after, chance.random() * 0.03)
            promised |= {int(line.split()[1]) for line in lines}
            ended |= {int(line.split()[1]) for line in lines if line.startswith("done")}
            kills += 1
    assert kills == 20
    following = await Journal.open(db, actor="next")
    rows = {entry.attempt.seq: entry for entry in await query.entries(db, AuditQuery(limit=10_000))}
    assert promised <= rows.keys()
    assert all(rows[seq].outcome == Outcome.OK for seq in ended)
    unknown = [entry for entry in rows.values() if entry.outcome == Outcome.UNKNOWN]
    assert 10 <= len(unknown) <= 20
    sessions = [entry.attempt.session for entry in unknown]
    assert len(set(sessions)) == len(sessions), "more than one unknown for one action in flight"
    assert rows[mine.audit_id].end is None, "a live console's attempt was closed"
    await live.finish(mine, Outcome.OK, 1, {})
    found = await verify.verify(db)
    assert found.ok, found.problem
    assert found.open_attempts == 0
    await live.close()
    await following.close()


async def test_four_processes_write_one_chain(home, tmp_path):
    db = tmp_path / "audit.db"
    command = [sys.executable, str(HERE / "writer.py"), str(db), "100"]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    seqs = [int(line) for writer in writers for line in writer.communicate(timeout=60)[0].split()]
    assert [writer.returncode for writer in writers] == [0] * 4
    assert len(set(seqs)) == 400
    found = await verify.verify(db)
    assert (found.ok, found.rows, found.open_attempts, found.unknown) == (True, 800, 0, 0)


async def test_cancelled_begins_leave_no_transaction_open(tmp_path):
    import asyncio

    db = tmp_path / "audit.db"
    journal = await Journal.open(db, actor="test")
    other = sqlite3.connect(db, timeout=0.5)
    chance = random.Random(2)
    for _ in range(200):
        task = asyncio.create_task(journal.begin("exec", "fake", "box", {}))
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 0.001)
        task.cancel()
        [result] = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(result, asyncio.CancelledError):
            await journal.finish(result, Outcome.OK, 1, {})
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    other.close()
    await journal.close()
    found = await verify.verify(db)
    assert found.ok
    assert found.open_attempts == 0, "a cancelled attempt has no outcome"
    assert found.rows > 0
