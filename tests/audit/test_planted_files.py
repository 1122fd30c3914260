"""Files beside the database that SQLite would read: a rollback journal is never played, and what is no file is no log."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from tests.audit.conftest import SMALL, act

from sandbox_console.audit import schema, segments, verify
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.query import entries
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import AuditQuery

HOT = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = DELETE")
db.execute("PRAGMA cache_spill = 1")
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN IMMEDIATE")
for name, in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
    db.execute(f"DROP TRIGGER {name}")
db.execute("DELETE FROM record WHERE seq > 3")
db.execute("CREATE TABLE filler (x)")
db.executemany("INSERT INTO filler VALUES (?)", [(bytes(4000),) for _ in range(200)])
os._exit(0)  # killed within its transaction
"""
"""Leaves a hot journal: what it has is played into the database by whoever opens that next."""


async def write(path, rows=5):
    journal = await Journal.open(path, "test", SMALL)
    await act(journal, rows)
    await journal.close()


def hot_journal(path, tmp_path):
    """A journal that undoes what was written into the database since it had three rows."""
    older = tmp_path / "older.db"
    shutil.copy(path, older)
    subprocess.run([sys.executable, "-c", HOT, str(older)], check=True)
    made = older.with_name("older.db-journal")
    assert made.stat().st_size > 4096
    return made


def rows_of(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        return db.execute("SELECT seq, body FROM record ORDER BY seq").fetchall()


async def test_a_hot_journal_is_set_aside_and_never_played(tmp_path):
    path = tmp_path / "log" / "audit.db"
    await write(path, 3)
    journal = hot_journal(path, tmp_path)
    await write(path, 5)
    before = rows_of(path)
    planted = path.with_name("audit.db-journal")
    shutil.copy(journal, planted)
    digest = hashlib.sha256(planted.read_bytes()).digest()
    await write(path, 1)
    assert not planted.exists()
    kept = path.with_name("audit.db-journal.planted")
    assert hashlib.sha256(kept.read_bytes()).digest() == digest
    assert rows_of(path)[: len(before)] == before
    found = await verify.verify(path)
    assert "a file was beside the database that no console made" in found.problem
    shutil.copy(journal, planted)
    await write(path, 1)
    assert path.with_name("audit.db-journal.planted-2").exists()
    assert hashlib.sha256(kept.read_bytes()).digest() == digest, "never overwritten"


async def test_sqlite_alone_would_play_it(tmp_path):
    """So that the test above shows something."""
    path = tmp_path / "audit.db"
    await write(path, 3)
    journal = hot_journal(path, tmp_path)
    await write(path, 5)
    before = rows_of(path)
    shutil.copy(journal, path.with_name("audit.db-journal"))
    with closing(sqlite3.connect(path)) as db:
        try:
            assert db.execute("SELECT seq, body FROM record ORDER BY seq").fetchall() != before
        except sqlite3.DatabaseError:
            return  # the pages do not fit together any more


async def test_readers_play_no_journal_and_verify_names_it(tmp_path):
    path = tmp_path / "log" / "audit.db"
    await write(path, 3)
    journal = hot_journal(path, tmp_path)
    await write(path, 5)
    shutil.copy(journal, path.with_name("audit.db-journal"))
    whole = path.read_bytes()
    found = await verify.verify(path)
    assert "audit.db-journal was put beside the log: no console made it" in found.problem
    assert len(await entries(path, AuditQuery())) == 8
    assert path.read_bytes() == whole


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["fifo", "link", "folder"])
async def test_what_is_no_file_is_set_aside(tmp_path, end, kind):
    path = tmp_path / "log" / "audit.db"
    await write(path, 3)
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    there = path.with_name("audit.db" + end)
    {"fifo": os.mkfifo, "link": lambda at: at.symlink_to(victim), "folder": os.mkdir}[kind](there)
    await write(path, 2)
    assert victim.read_text() == "mine\n"
    assert os.path.lexists(path.with_name(f"audit.db{end}.planted"))
    if kind == "fifo":
        path.with_name(f"audit.db{end}.planted").unlink()
    found = await verify.verify(path)
    assert "no console made" in found.problem
    assert found.rows == 11


async def test_what_waits_for_the_next_segment_is_set_aside(tmp_path):
    path = tmp_path / "log" / "audit.db"
    await write(path, 3)
    following = Layout(path).segment(2)
    for end in ("-journal", "-wal"):
        following.with_name(following.name + end).write_bytes(b"\x37\x7f\x06\x82" + bytes(4096))
    await write(path, 200)
    assert following.exists()
    for end in ("-journal", "-wal"):
        assert following.with_name(following.name + end + ".planted").exists()


def test_a_new_segment_has_a_write_ahead_log_from_the_beginning(tmp_path):
    segments.make(tmp_path / "audit.db", schema.new_log())
    assert (tmp_path / "audit.db").read_bytes()[18:20] == b"\2\2"  # https://www.sqlite.org/fileformat2.html
    assert [one.name for one in tmp_path.iterdir()] == ["audit.db"]


HARMS = {
    "fifo": os.mkfifo,
    "link": lambda at: at.symlink_to(at.parent.parent / "victim"),
    "folder": os.mkdir,
    "huge": lambda at: (at.touch(), os.truncate(at, 5 << 30)),
    "deep": lambda at: at.write_bytes(b"[" * 100_000),
    "NUL": lambda at: at.write_bytes(bytes(5000)),
}


async def refusal(work):
    try:
        await work
    except AuditUnavailable as error:
        return error
    return None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", ["anchors.jsonl", "head.json", "audit.pages", "reserve", "audit.lock", "shipped.json"])
async def test_a_damaged_file_of_the_log_is_an_error_or_on_record_and_holds_nothing_up(tmp_path, name, harm):
    path = tmp_path / "log" / "audit.db"
    await write(path, 3)
    (tmp_path / "victim").write_text("mine\n")
    (path.parent / name).unlink(missing_ok=True)
    HARMS[harm](path.parent / name)
    for work in (write(path, 1), verify.verify(path), entries(path, AuditQuery())):
        error = await refusal(work)
        assert error is None or (name in error.message and error.hint)
    assert (tmp_path / "victim").read_text() == "mine\n"
