"""Kills, flipped bits, broken pages, a clock that goes back, an older and a newer console on one log."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.audit.conftest import SMALL, act, spoil

from sandbox_console.audit import query, rows, schema, verify
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import AuditQuery, Outcome

FLIPS = 1500


def rows_of(path):
    found = set()
    for index in Layout(path).indices():
        with closing(sqlite3.connect(Layout(path).segment(index))) as db:
            found |= {seq for [seq] in db.execute("SELECT seq FROM record").fetchall()}
    return found


def start_writer(path):
    command = [sys.executable, "-m", "tests.audit.writer", str(path), "100000", "150000"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_200_kills_of_8_writers_with_rotation_lose_nothing(tmp_path, capsys):
    path = tmp_path / "audit.db"
    chance = random.Random(3)
    acknowledged: set[int] = set()
    kills = 0
    writers = [start_writer(path) for _ in range(8)]
    for turn in range(200):
        victim = writers[turn % 8]
        told = victim.stdout.readline()
        time.sleep(chance.random() * 0.1)
        os.kill(victim.pid, signal.SIGKILL)
        told += victim.communicate()[0]
        acknowledged |= {int(line) for line in told.split(b"\n")[:-1]}
        kills += 1
        writers[turn % 8] = start_writer(path)
    for writer in writers:
        writer.kill()
        acknowledged |= {int(line) for line in writer.communicate()[0].split(b"\n")[:-1]}
    journal = await Journal.open(path, "after", SMALL)
    found = await verify.verify(path)
    lost = acknowledged - rows_of(path)
    entries = await query.entries(path, AuditQuery(limit=100_000, outcome="unknown"))
    sessions = [one.attempt.session for one in entries]
    with capsys.disabled():
        print(  # noqa: T201 - a line a figure
            f"\nkill -9 x {kills}, 8 writers: {len(acknowledged)} rows acknowledged, {len(lost)} lost, {found.segments} "
            f"segments, {found.unknown} unknown"
        )
    await journal.close()
    assert not lost
    assert found.ok, found.problem
    assert len(sessions) == len(set(sessions)), "more than one unknown for a session that had one action in flight"
    assert found.open_attempts == 0
    assert found.segments > 1


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_1500_flipped_bits_are_found(tmp_path, capsys):
    """Every flip that changes what a row says; one in free space or in an index's padding changes nothing."""
    path = tmp_path / "log" / "audit.db"
    journal = await Journal.open(path, "test")
    await act(journal, 40)
    await journal.close()
    original = path.read_bytes()
    whole = rows_and_meta(path)
    chance = random.Random(4)
    changed = missed = 0
    for _ in range(FLIPS):
        at, bit = chance.randrange(len(original)), 1 << chance.randrange(8)
        spoiled = bytearray(original)
        spoiled[at] ^= bit
        path.write_bytes(spoiled)
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        try:
            differs = rows_and_meta(path) != whole
        except (sqlite3.Error, UnicodeDecodeError):
            differs = True
        try:
            found = (await verify.verify(path)).ok is False
        except AuditUnavailable:
            found = True
        changed += differs
        missed += differs and not found
    with capsys.disabled():
        print(f"\n{FLIPS} bit flips: {changed} changed the log, {missed} of them not found")  # noqa: T201
    assert changed > 200
    assert missed == 0


def rows_and_meta(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        found = [db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in ("record",)]
        return found, db.execute("SELECT value FROM meta WHERE key IN ('genesis', 'first_seq')").fetchall()


async def test_a_broken_page_is_left_behind_after_an_unclean_end(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test")
    ids = await act(journal, 200)
    await journal.close()
    content = bytearray(path.read_bytes())
    for page in range(8, len(content) // 4096, 3):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    (tmp_path / "sessions" / "0123456789abcdef.lock").touch()  # as one that was killed leaves
    following = await Journal.open(path, "next")
    permit = await following.begin("exec", "fake", "box", {})
    await following.finish(permit, Outcome.OK, 1, {})
    await following.close()
    layout = Layout(path)
    assert layout.indices() == [1, 2]
    assert permit.audit_id > max(ids), "ids are never given twice"
    found = await verify.verify(path)
    assert not found.ok
    assert "segment 1 was damaged and left" in found.problem
    assert (await query.entries(path, AuditQuery(limit=1)))[0].attempt.seq == permit.audit_id
    # Nor once the damaged file is taken elsewhere: whoever spoils a segment and deletes it must not be passed.
    path.rename(tmp_path / "evidence.db")
    found = await verify.verify(path)
    assert not found.ok
    assert "segment 1" in found.problem


async def test_corruption_met_while_writing_does_not_stop_the_record(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test")
    await act(journal, 300)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for at in range(4096, size, 4096):
            file.seek(at)
            file.write(b"\xff" * 128)
    for _ in range(5):
        permit = await journal.begin("exec", "fake", "box", {"x": "y" * 5000})
        await journal.finish(permit, Outcome.OK, 1, {})
    await journal.close()
    newest = Layout(path).segment(Layout(path).newest())
    with closing(sqlite3.connect(newest)) as db:
        assert db.execute("SELECT max(seq) FROM record").fetchone()[0] >= permit.audit_id


async def test_a_clock_that_goes_back_keeps_the_order(tmp_path, monkeypatch):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test")
    first = await act(journal, 2)
    monkeypatch.setattr(rows.time, "time_ns", lambda: 1_000_000_000)
    second = await act(journal, 2)
    monkeypatch.undo()
    await journal.close()
    found = await verify.verify(path)
    assert found.ok
    assert any("clock" in limit for limit in found.limits)
    assert [one.attempt.seq for one in await query.entries(path, AuditQuery())] == [*first, *second][::-1]


async def test_a_read_only_log_is_refused_and_read(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root writes everything: run by test_as_user")
    path = tmp_path / "log" / "audit.db"
    journal = await Journal.open(path, "test")
    await act(journal, 3)
    await journal.close()
    for part in (*path.parent.iterdir(), path.parent):
        part.chmod(0o500 if part.is_dir() else 0o400)
    try:
        with pytest.raises(AuditUnavailable):
            await Journal.open(path, "test")
        assert len(await query.entries(path, AuditQuery())) == 3
        assert (await verify.verify(path)).ok
    finally:
        for part in (path.parent, *path.parent.iterdir()):
            part.chmod(0o700)


OLD = "4226603"
"""The last commit whose console knew no segments."""


@pytest.fixture
def old_program(tmp_path):
    """That console's package, out of the repository; none where the history is not there."""
    root = Path(__file__).parents[2]
    made = subprocess.run(["git", "archive", OLD, "src"], cwd=root, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"commit {OLD} is not in this clone")
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=made.stdout, check=True)
    return tmp_path / "src"


def run_old(program, path, count):
    env = os.environ | {"PYTHONPATH": str(program)}
    script = Path(__file__).parents[1] / "faults" / "writer.py"
    return subprocess.run(
        [sys.executable, str(script), str(path), str(count)], env=env, capture_output=True, text=True, check=False
    )


async def test_an_old_consoles_log_is_continued_and_the_old_console_may_go_on_until_it_is_rotated(
    tmp_path, old_program
):
    path = tmp_path / "audit.db"
    assert run_old(old_program, path, 20).returncode == 0
    journal = await Journal.open(path, "new")
    await act(journal, 10)
    assert run_old(old_program, path, 20).returncode == 0, "both write one log, live"
    await act(journal, 10)
    await journal.close()
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert (found.rows, found.segments) == (120, 1)
    small = await Journal.open(path, "new", SMALL)
    await act(small, 300)
    await small.close()
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert found.segments > 1
    refused = run_old(old_program, path, 1)
    assert "schema 2" in refused.stderr, "it must not fork the chain at the sealed segment"
    assert (await verify.verify(path)).ok


async def test_a_log_of_a_newer_console_is_refused(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test")
    await journal.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(AuditUnavailable, match="schema"):
        await Journal.open(path, "test")


async def test_a_log_replaced_together_with_its_anchors_needs_the_key(segmented, tmp_path):
    """Whoever has no key cannot make anchors; with the key it is what the document says is not protected."""
    other = tmp_path / "forged" / "audit.db"
    journal = await Journal.open(other, "forger", SMALL)
    await act(journal, 150)
    await journal.close()
    layout, forged = Layout(segmented), Layout(other)
    for index in layout.indices():
        layout.segment(index).unlink()
    for index in forged.indices():
        shutil.copy(forged.segment(index), layout.segment(index))
    assert "rewritten" in (await verify.verify(segmented)).problem or not (await verify.verify(segmented)).ok
    shutil.copy(forged.anchors, layout.anchors)
    assert "signature" in (await verify.verify(segmented)).problem
    shutil.copy(forged.key, layout.key)
    shutil.copy(forged.head, layout.head)
    assert "manifest.json was changed" in (await verify.verify(segmented)).problem
    for index in forged.indices()[:-1]:
        shutil.copy(forged.manifest(index), layout.manifest(index))
    assert "audit.pages was changed" in (await verify.verify(segmented)).problem
    shutil.copy(forged.pages, layout.pages)
    assert (await verify.verify(segmented)).ok, "the limit that verify and docs/audit.md tell"


async def test_deleted_and_cut_anchors_are_found(segmented):
    layout = Layout(segmented)
    lines = layout.anchors.read_bytes().splitlines(keepends=True)
    layout.anchors.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert "taken out" in (await verify.verify(segmented)).problem
    layout.anchors.write_bytes(b"")
    assert "anchors are missing" in (await verify.verify(segmented)).problem
    layout.anchors.write_bytes(b"".join(lines))
    newest = layout.segment(layout.newest())
    spoil(newest, "DELETE FROM record WHERE seq > (SELECT max(seq) - 5 FROM record)")
    found = await verify.verify(segmented)
    assert "tail was cut" in found.problem
