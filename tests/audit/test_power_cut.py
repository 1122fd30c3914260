"""300 power cuts: what was acknowledged is there, and the log holds."""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
from contextlib import closing, suppress

import pytest
from tests.audit import powercut
from tests.support.require import requires

from sandbox_console.audit import verify
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout

pytestmark = [requires("strace"), pytest.mark.slow]

CUTS = 300


def record(tmp_path, *more):
    folder = tmp_path / "log"
    folder.mkdir()
    command = [sys.executable, "-m", "tests.audit.writer", str(folder / "audit.db"), "150", "100000", *more]
    return folder, powercut.trace(command, folder, tmp_path / "trace")


def cuts(calls, folder, tmp_path, seed):
    """The acknowledged rows and the folder left, at CUTS moments."""
    chance = random.Random(seed)
    moments = sorted(chance.randrange(len(calls)) for _ in range(CUTS))
    disk, done = powercut.Disk(), 0
    for number, moment in enumerate(moments):
        for call in calls[done:moment]:
            disk.apply(call)
        done = max(done, moment)
        left = tmp_path / f"cut-{number}"
        left.mkdir()
        yield disk.cut(chance, left, folder), left
        shutil.rmtree(left)


def rows_of(path):
    found = set()
    for index in Layout(path).indices():
        with suppress(sqlite3.Error), closing(sqlite3.connect(Layout(path).segment(index))) as db:
            found |= {seq for [seq] in db.execute("SELECT seq FROM record").fetchall()}
    return found


@pytest.mark.timeout(280)
async def test_no_acknowledged_row_is_lost(tmp_path, capsys):
    folder, calls = record(tmp_path)
    acknowledged = lost = 0
    segments = set()
    for told, left in cuts(calls, folder, tmp_path, seed=1):
        journal = await Journal.open(left / "audit.db", "next")
        await journal.close()
        found = await verify.verify(left / "audit.db")
        assert found.ok, found.problem
        missing = set(told) - rows_of(left / "audit.db")
        acknowledged += len(told)
        lost += len(missing)
        segments.add(found.segments)
    with capsys.disabled():
        print(  # noqa: T201 - a line a figure
            f"\npower cuts {CUTS}: {acknowledged} rows acknowledged, {lost} lost, {max(segments)} segments at most"
        )
    assert lost == 0
    assert max(segments) > 1, "the cuts also hit a rotation"


@pytest.mark.timeout(280)
async def test_the_same_cuts_find_what_synchronous_normal_loses(tmp_path, capsys):
    folder, calls = record(tmp_path, "NORMAL")
    lost = 0
    for told, left in cuts(calls, folder, tmp_path, seed=1):
        lost += len(set(told) - rows_of(left / "audit.db"))
    with capsys.disabled():
        print(  # noqa: T201 - a line a figure
            f"\npower cuts {CUTS} with synchronous NORMAL: {lost} rows lost"
        )
    assert lost > 0
