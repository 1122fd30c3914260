"""Bytes that no row uses: a flip there is told for a closed log, put on record by the next console, and never invented."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing

import pytest
from tests.audit.conftest import SMALL, act, flip

from sandbox_console.audit import verify
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout
from sandbox_console.errors import AuditUnavailable

FLIPS = int(os.environ.get("AUDIT_FLIPS", "160"))


@pytest.fixture
async def closed(tmp_path):
    """A log of several segments with free pages in the newest, as a clean end leaves it."""
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "user:größe", SMALL)
    await act(journal, 250)
    await journal.close()
    assert len(Layout(path).indices()) > 1
    return path


def parts(layout):
    """The files that verify() vouches for."""
    segments = [layout.segment(index) for index in layout.indices()]
    manifests = [layout.manifest(index) for index in layout.indices()[:-1]]
    return [*segments, *manifests, layout.anchors, layout.pages, layout.head, layout.key]


async def told(path):
    try:
        return not (await verify.verify(path)).ok
    except AuditUnavailable:
        return True


@pytest.mark.timeout(900)
async def test_each_flipped_bit_of_a_closed_log_is_told(closed, capsys):
    chance = random.Random(11)
    whole = await verify.verify(closed)
    assert whole.ok, whole.problem
    assert whole.compared == whole.segments > 1
    missed, files = [], parts(Layout(closed))
    for turn in range(FLIPS):
        part = files[turn % len(files)]
        content = part.read_bytes()
        at, bit = chance.randrange(len(content)), chance.randrange(8)
        flipped = bytearray(content)
        flipped[at] ^= 1 << bit
        part.write_bytes(flipped)
        if not await told(closed):
            missed.append((part.name, at, bit))
        part.write_bytes(content)
    with capsys.disabled():
        print(f"\n{FLIPS} flips in {len(files)} files: {len(missed)} not told")  # noqa: T201
    assert not missed
    assert (await verify.verify(closed)).ok, "the files are whole again"


async def test_a_change_where_no_row_is_is_put_on_record_by_the_next_console(closed):
    newest = Layout(closed).segment(Layout(closed).newest())
    flip(newest, 96)  # "the version number of the SQLite that wrote last" in the header
    assert "changed where it has no row" in (await verify.verify(closed)).problem
    journal = await Journal.open(closed, "next", SMALL)
    await act(journal, 3)
    await journal.close()
    found = await verify.verify(closed)
    assert "the segment's file had been changed where it has no row" in found.problem


async def test_an_open_or_a_killed_console_is_no_false_alarm_and_is_said(closed):
    journal = await Journal.open(closed, "open", SMALL)
    await act(journal, 3)
    found = await verify.verify(closed)
    assert found.ok, found.problem
    assert found.compared == found.segments - 1
    assert any("bytes of" in limit and "that no row uses" in limit for limit in found.limits), found.limits
    await journal.close()
    assert (await verify.verify(closed)).compared == found.segments


async def test_two_consoles_that_close_leave_digests_that_hold(closed):
    one, two = [await Journal.open(closed, name, SMALL) for name in ("one", "two")]
    for _ in range(5):
        await act(one, 2)
        await act(two, 2)
    await one.close()
    assert (await verify.verify(closed)).ok
    await act(two, 1)
    await two.close()
    found = await verify.verify(closed)
    assert found.ok, found.problem
    assert found.compared == found.segments


async def test_reading_with_another_program_is_no_change(closed):
    newest = Layout(closed).segment(Layout(closed).newest())
    with closing(sqlite3.connect(newest)) as db:
        assert db.execute("SELECT count(*) FROM record").fetchone()[0] > 0
    found = await verify.verify(closed)
    assert found.ok, found.problem
    assert found.compared == found.segments
