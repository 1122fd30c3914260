"""Segments: the chain goes on from one to the next, whatever happens between them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
from contextlib import closing, suppress

import pytest
from tests.audit.conftest import SMALL, act, spoil

from sandbox_console.audit import query, segments, verify, verify_segment
from sandbox_console.audit.anchors import Anchors
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.audit.sessions import Session
from sandbox_console.audit.store import Store
from sandbox_console.audit.urgent_rows import UrgentRows
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import AuditQuery, Outcome


async def test_a_log_goes_on_over_segments(segmented):
    layout = Layout(segmented)
    assert len(layout.indices()) >= 3
    found = await verify.verify(segmented)
    assert found.ok, found.problem
    assert (found.segments, found.open_attempts, found.unknown) == (len(layout.indices()), 0, 0)
    assert found.anchors >= found.segments - 1


async def test_pages_go_over_segments_without_a_gap_or_a_double(segmented):
    seen, before = [], None
    while page := await query.entries(segmented, AuditQuery(limit=33, before_seq=before)):
        seen += [one.attempt.body["n"] for one in page]
        before = page[-1].attempt.seq
        assert all(one.end is not None for one in page)
    assert seen == list(range(399, -1, -1))
    assert len(await query.entries(segmented, AuditQuery(limit=1000, outcome="failed"))) == 40
    assert len(await query.entries(segmented, AuditQuery(limit=1000, target="box-3"))) == 57
    assert len(await query.entries(segmented, AuditQuery(limit=1000, text='"n":39'))) == 11


async def test_what_ends_in_a_later_segment_is_found_with_its_attempt(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test", SMALL)
    long = await journal.begin("exec", "fake", "long", {})
    await act(journal, 300)
    await journal.finish(long, Outcome.FAILED, 9, {"code": "x"}, target="fake/local/made")
    await journal.note(long, "fake", "long", {"bytes": 3})
    await journal.close()
    entry = await query.entry(path, long.audit_id)
    assert (entry.outcome, len(entry.notes)) == ("failed", 1)
    for wanted in (AuditQuery(limit=1000, outcome="failed"), AuditQuery(target="fake/local/made")):
        assert long.audit_id in [one.attempt.seq for one in await query.entries(path, wanted)]
    assert (await query.entry(path, entry.end.seq)).attempt.seq == long.audit_id


async def test_a_dead_sessions_attempt_of_a_newer_segment_becomes_unknown(tmp_path):
    """Between the opening of a log and the look for dead sessions another console may go on to the next segment."""
    path = tmp_path / "audit.db"
    layout = Layout(path)
    await (await Journal.open(path, "first", SMALL)).close()
    session = Session(layout.sessions)
    store = Store(layout, SMALL, "test", session.id, UrgentRows(layout.urgent(session.id), Keys(layout.key)))
    journal = await Journal.open(path, "other", SMALL)
    await act(journal, 300)
    await journal.begin("exec", "fake", "cut short", {})
    assert len(layout.indices()) > 1
    await journal.close()
    assert store.begin()
    store.close()
    session.close()
    assert (await verify.verify(path)).open_attempts == 0


async def test_a_dead_sessions_attempt_of_an_older_segment_becomes_unknown(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test", SMALL)
    long = await journal.begin("exec", "fake", "long", {})
    await act(journal, 300)
    await journal.close()
    following = await Journal.open(path, "next", SMALL)
    await following.close()
    assert (await query.entry(path, long.audit_id)).outcome == Outcome.UNKNOWN
    found = await verify.verify(path)
    assert (found.ok, found.unknown, found.open_attempts) == (True, 1, 0)


async def test_several_writers_follow_each_other(tmp_path):
    path = tmp_path / "audit.db"
    journals = [await Journal.open(path, f"writer-{number}", SMALL) for number in range(3)]
    for _ in range(8):
        for journal in journals:
            await act(journal, 15)
    for journal in journals:
        await journal.close()
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert (found.segments > 2, found.open_attempts) == (True, 0)


async def test_a_log_holds_that_is_rotated_and_shipped_while_it_is_walked(tmp_path, monkeypatch):
    path = tmp_path / "audit.db"
    layout = Layout(path)

    async def more(count):
        journal = await Journal.open(path, "test", SMALL)
        await act(journal, count)
        await journal.close()

    def walk(*args, before=verify_segment.chain.walk):
        monkeypatch.undo()
        asyncio.run(more(150))
        console = query_one(path, "SELECT value FROM meta WHERE key = 'console_uuid'")
        layout.cursor.write_text(json.dumps({"console": console, "seq": 250}))
        return before(*args)

    await more(20)
    monkeypatch.setattr(verify_segment.chain, "walk", walk)
    found = await verify.verify(path)
    assert (found.ok, found.rows, layout.newest()) == (True, 40, 2), found.problem
    assert (await verify.verify(path)).rows == 341


async def test_a_rotator_killed_after_the_seal_is_finished_by_the_next(tmp_path, monkeypatch):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test", SMALL)

    def die(*_):
        raise OSError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(segments, "follow_on", die)
        with suppress(AuditUnavailable, OSError):
            await act(journal, 300)
    Layout(path).segment(2).with_name("audit-000002.db.new").write_bytes(b"half made")
    await act(journal, 5)
    await journal.close()
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert found.segments == 2


_INSERT = """INSERT INTO record SELECT max(seq) + 1, ts_ns, 'note', 1, actor, session, request_id, action, backend,
    target, outcome, dur_us, body, prev, hash, mac FROM record"""


@pytest.mark.parametrize("what", ["edit", "delete", "insert", "swap", "truncate", "replace", "genesis"])
async def test_spoiling_an_old_segment_is_found(segmented, what):
    old = Layout(segmented).segment(2)
    first = int(query_one(old, "SELECT min(seq) FROM record"))
    spoil(
        old,
        *{
            "edit": [f"UPDATE record SET actor = 'x' WHERE seq = {first + 3}"],
            "delete": [f"DELETE FROM record WHERE seq = {first + 3}"],
            "insert": [_INSERT],
            "swap": [
                f"UPDATE record SET seq = 0 WHERE seq = {first}",
                f"UPDATE record SET seq = {first} WHERE seq = {first + 1}",
                f"UPDATE record SET seq = {first + 1} WHERE seq = 0",
            ],
            "truncate": [f"DELETE FROM record WHERE seq > {first + 10}"],
            "replace": ["DELETE FROM record"],
            "genesis": ["UPDATE meta SET value = '00' WHERE key = 'genesis'"],
        }[what],
    )  # fmt: skip
    found = await verify.verify(segmented)
    assert not found.ok
    assert found.problem


@pytest.mark.parametrize(
    ("index", "problem"),
    [(2, "segment 2 is missing"), (1, "segment 1 is missing, and no row says that retention removed it")],
)
async def test_a_missing_segment_is_named(segmented, index, problem):
    Layout(segmented).segment(index).unlink()
    assert (await verify.verify(segmented)).problem == problem


async def test_a_missing_segment_and_manifest_is_named(segmented):
    layout = Layout(segmented)
    layout.segment(1).unlink()
    layout.manifest(1).unlink()
    assert (await verify.verify(segmented)).problem == "segment 1 is missing, and there is no manifest for it"


async def test_a_forged_manifest_is_named(segmented):
    layout = Layout(segmented)
    layout.segment(1).unlink()
    told = json.loads(layout.manifest(1).read_text())
    layout.manifest(1).write_text(json.dumps(told | {"rows": 1}))
    assert "signature" in (await verify.verify(segmented)).problem


async def test_retention_takes_whole_old_segments_and_keeps_one_chain(tmp_path):
    path = tmp_path / "audit.db"
    archive = tmp_path / "archive"
    keep = RetentionPolicy(segment_bytes=SMALL.segment_bytes, segments=2, archive=archive)
    journal = await Journal.open(path, "test", keep)
    await act(journal, 600)
    await journal.close()
    layout = Layout(path)
    assert len(layout.indices()) == 2
    assert min(one.name for one in archive.glob("*.db")) == "audit-000002.db"
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert any("retention" in limit for limit in found.limits)
    with pytest.raises(Exception, match="no row"):
        await query.entry(path, 1)
    # The archive is the same chain: read where it is, or put back, all of it holds.
    read = await verify.verify(path, archive=archive)
    assert (read.ok, read.problem) == (True, "")
    assert read.segments == found.segments + len(list(archive.glob("*.db")))
    middle = archive / "audit-000002.db"
    kept = middle.read_bytes()
    spoil(middle, "UPDATE record SET action = 'forged' WHERE seq = (SELECT max(seq) FROM record)")
    assert not (await verify.verify(path, archive=archive)).ok
    assert (await verify.verify(path)).ok
    middle.write_bytes(kept[: len(kept) // 2])
    assert "segment 2" in (await verify.verify(path, archive=archive)).problem
    middle.unlink()
    assert (await verify.verify(path, archive=archive)).rows < read.rows, "what lies before a hole is not counted"
    os.mkfifo(middle)
    with pytest.raises(Exception, match=r"audit-000002\.db is not a file"):
        await verify.verify(path, archive=archive)
    middle.unlink()
    middle.write_bytes(kept)
    for part in archive.iterdir():
        part.rename(path.parent / part.name)
    whole = await verify.verify(path)
    assert whole.ok, whole.problem
    assert whole.rows > found.rows


def query_one(path, sql):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchone()[0]


def test_journald_gets_a_copy_of_each_anchor_and_holds_nothing_up(tmp_path):
    """By its native protocol: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(tmp_path / "socket"))
        journald.settimeout(15)
        anchors = Anchors(tmp_path / "anchors.jsonl", tmp_path / "anchor.key", tmp_path / "socket")
        made = anchors.add("console-1", 1, 17, b"\x01" * 32, "count")
        told = dict(line.split("=", 1) for line in journald.recv(65536).decode().splitlines())
    assert told["SANDBOX_CONSOLE_ANCHOR"] == made.mac
    assert told["MESSAGE"] == f"audit anchor: log console-1 row 17 hash {'01' * 32}"
    again = anchors.add("console-1", 1, 18, b"\x02" * 32, "count")
    assert anchors.read() == ([made, again], ""), "nobody listens any more, and the anchor is there all the same"
