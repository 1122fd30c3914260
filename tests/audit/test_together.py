"""Appends that are cancelled, readers beside eight writers, two consoles at once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from sandbox_console.audit import export, query, verify
from sandbox_console.audit.journal import Journal
from sandbox_console.model.audit import AuditQuery, AuditSelection, Kind, Outcome


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_200_cancelled_appends_leave_no_transaction_open(tmp_path, capsys):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "cancelled")
    chance = random.Random(5)
    blocked = given = 0
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        for number in range(200):
            task = asyncio.create_task(journal.begin("exec", "fake", "box", {"n": number}))
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.002)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                permit = await task
                await journal.finish(permit, Outcome.OK, 1, {})
                given += 1
            await journal.begin("exec", "fake", "after", {})  # in order behind what was cancelled
            try:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
            except sqlite3.OperationalError:
                blocked += 1
    found = await verify.verify(path)
    with capsys.disabled():
        print(f"\ncancelled appends x 200: {blocked} transactions left open, {given} finished before")  # noqa: T201
    await journal.close()
    assert blocked == 0
    assert found.ok, found.problem


async def test_a_cancelled_attempt_gets_its_end(tmp_path):
    """Its caller has no permit to end it with, so that the journal does."""
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "cancelled")
    for _ in range(20):
        task = asyncio.create_task(journal.begin("exec", "fake", "box", {}))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    entries = await query.entries(path, AuditQuery())
    await journal.close()
    assert {one.outcome for one in entries} <= {Outcome.CANCELLED}


async def test_readers_see_one_state_while_eight_write(tmp_path):
    path = tmp_path / "audit.db"
    await (await Journal.open(path, "first")).close()
    command = [sys.executable, "-m", "tests.audit.writer", str(path), "150", "150000"]
    writers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(8)]
    looks = 0
    try:
        while any(writer.poll() is None for writer in writers) or not looks:
            entries = await query.entries(path, AuditQuery(limit=300))
            seqs = [one.attempt.seq for one in entries]
            assert seqs == sorted(set(seqs), reverse=True)
            found = await verify.verify(path)
            assert found.ok, found.problem
            looks += 1
    finally:
        codes = [writer.wait(60) for writer in writers]
    assert codes == [0] * 8
    rows = [row async for block in export.blocks(path, AuditSelection()) for row in block]
    kinds = [row[2] for row in rows]
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert kinds.count(Kind.ATTEMPT) == kinds.count(Kind.OUTCOME) == 8 * 150


async def test_two_consoles_leave_each_others_attempts_alone(tmp_path):
    path = tmp_path / "audit.db"
    first = await Journal.open(path, "first")
    mine = await first.begin("exec", "fake", "box", {})
    second = await Journal.open(path, "second")
    theirs = await second.begin("exec", "fake", "box", {})
    third = await Journal.open(path, "third")
    await third.close()
    assert [one.outcome for one in await query.entries(path, AuditQuery())] == ["", ""]
    await first.finish(mine, Outcome.OK, 1, {})
    await second.finish(theirs, Outcome.FAILED, 1, {})
    await first.close()
    await second.close()
    assert [one.outcome for one in await query.entries(path, AuditQuery())] == ["failed", "ok"]
