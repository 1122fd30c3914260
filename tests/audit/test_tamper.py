"""Whatever somebody does to the files of a log, the walk says so: each by its own words."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.audit.conftest import SMALL, act, spoil

from sandbox_console.audit import verify
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout
from sandbox_console.errors import AuditUnavailable

CUT = "DELETE FROM record WHERE seq > (SELECT max(seq) - 5 FROM record)"


DEAF = "CREATE TRIGGER deaf BEFORE INSERT ON record WHEN NEW.action = 'remove' BEGIN SELECT RAISE(IGNORE); END"


def swap(layout, one, other):
    first, second = layout.segment(one), layout.segment(other)
    first.rename(layout.folder / "aside")
    second.rename(first)
    (layout.folder / "aside").rename(second)


def newest(layout):
    return layout.segment(layout.newest())


def without(layout, *parts):
    for part in parts:
        part.unlink()


def undo(path, trigger, *statements):
    with closing(sqlite3.connect(path)) as db:
        for statement in (f"DROP TRIGGER {trigger}", *statements):
            db.execute(statement)
        db.commit()


def lying_index(layout):
    """An index without the denied ones, under its old name and definition: a filter would never meet them."""
    with closing(sqlite3.connect(newest(layout), isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        [made] = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'by_outcome'").fetchone()
        db.execute("DROP INDEX by_outcome")
        db.execute("CREATE INDEX by_outcome ON record (outcome, seq) WHERE outcome <> '' AND outcome <> 'failed'")
        db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'by_outcome'", (made,))


def alter(path, *statements):
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def word_without_key(layout):
    """As a flipped bit in the header of a row of ``meta`` can leave it."""
    with closing(sqlite3.connect(newest(layout), isolation_level=None)) as db:
        [made] = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'meta'").fetchone()
    for sql, more in ((made.replace(" STRICT", ""), "INSERT INTO meta VALUES (NULL, 'b')"), (made, "SELECT 1")):
        with closing(sqlite3.connect(newest(layout), isolation_level=None)) as db:
            db.execute("PRAGMA writable_schema = ON")
            db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'meta'", (sql,))
        alter(newest(layout), more)


def unseen_edit(layout):
    """Rows that no anchor has, edited, beside a note that says the segment is damaged."""
    layout.quarantine(layout.newest()).write_text("{}")
    undo(newest(layout), "no_update", "UPDATE record SET actor = 'x' WHERE seq = (SELECT max(seq) FROM record)")


def anchors_of_the_beginning(layout):
    layout.anchors.write_bytes(layout.anchors.read_bytes().splitlines(keepends=True)[0])


def spoilt_anchor(layout):
    lines = layout.anchors.read_bytes().splitlines(keepends=True)
    layout.anchors.write_bytes(b"".join(lines[:-1]) + b'{"seq": 1}\n')


def edited_manifest(layout):
    told = json.loads(layout.manifest(1).read_text())
    layout.manifest(1).write_text(json.dumps(told | {"last_seq": 1}))


HANDS = {
    "two segments swapped": (lambda it: swap(it, 1, 2), "the file of segment 1 is that of segment 2"),
    "the newest swapped": (lambda it: swap(it, 2, 3), "the file of segment 2 is that of segment 3"),
    "a copy as another": (lambda it: shutil.copy(it.segment(2), it.segment(4)), "the file of segment 4 is that of"),
    "the newest taken": (lambda it: without(it, newest(it)), "the tail was cut"),
    "tail and anchors taken": (lambda it: (spoil(newest(it), CUT), without(it, it.anchors)), "anchors are missing"),
    "newest, anchors and key taken": (
        lambda it: without(it, newest(it), it.anchors, it.key),
        "the anchors and their key are missing",
    ),
    "a guard taken": (lambda it: undo(newest(it), "no_delete"), "its trigger no_delete is not as made"),
    "a guard hollowed": (
        lambda it: undo(
            newest(it), "no_update", "CREATE TRIGGER no_update BEFORE UPDATE ON record WHEN 0 BEGIN SELECT 1; END"
        ),
        "its trigger no_update is not as made",
    ),
    "a seal broken": (lambda it: undo(it.segment(1), "sealed"), "its trigger sealed is not as made"),
    "a manifest edited": (edited_manifest, "audit-000001.manifest.json was changed"),
    "a manifest taken": (lambda it: without(it, it.manifest(2)), "the manifest of segment 2 is missing"),
    "a manifest of another": (lambda it: shutil.copy(it.manifest(2), it.manifest(1)), "does not match its manifest"),
    "another log's name": (
        lambda it: spoil(it.segment(2), "UPDATE meta SET value = 'x' WHERE key = 'console_uuid'"),
        "segment 2 says that it is of another log",
    ),
    "a segment emptied": (lambda it: it.segment(2).write_bytes(b""), "segment 3 does not follow segment 2"),
    "an index that leaves rows out": (lying_index, "missing from index by_outcome"),
    "an index dropped": (lambda it: alter(newest(it), "DROP INDEX one_end"), "its index one_end is not as made"),
    "a trigger put in": (lambda it: alter(newest(it), DEAF), "the trigger deaf was put in"),
    "a word put in": (lambda it: alter(newest(it), "INSERT INTO meta VALUES ('a', 'b')"), "its table meta has a"),
    "a word whose key is none": (word_without_key, "NULL value in meta.key"),
    "an attempt carried over": (
        lambda it: alter(newest(it), "INSERT INTO carried VALUES (5, 's', 'exec', 'fake', 'box', 'r')"),
        "its table carried is not as made",
    ),
    "an older version's look": (lambda it: alter(newest(it), "PRAGMA user_version = 1"), "user_version is not as made"),
    "an edit called damage": (unseen_edit, "audit-000003.quarantine.json was changed"),
    "all anchors but the first": (anchors_of_the_beginning, "the anchors end at row 100, the log at row"),
    "the last anchor spoilt": (spoilt_anchor, "was changed: its signature is not valid"),
    "a forged quarantine": (lambda it: it.quarantine(2).write_text("{}"), "quarantine.json was changed"),
}


@pytest.mark.parametrize("hand", HANDS)
async def test_a_hand_on_the_files_is_named(segmented, hand):
    do, words = HANDS[hand]
    do(Layout(segmented))
    found = await verify.verify(segmented)
    assert not found.ok
    assert words in found.problem


async def test_an_older_copy_is_seen_by_what_was_shipped(segmented):
    """Log and anchors put back together look whole: what is left is what others have."""
    layout = Layout(segmented)
    with closing(sqlite3.connect(layout.segment(1))) as db:
        [console] = db.execute("SELECT value FROM meta WHERE key = 'console_uuid'").fetchone()
    layout.cursor.write_text(json.dumps({"console": console, "seq": 10**6}))
    found = await verify.verify(segmented)
    assert "row 1000000 was shipped, and the log ends at" in found.problem
    assert any("older copy of log and anchors" in limit for limit in found.limits)


@pytest.mark.parametrize(
    ("hand", "words"),
    [
        (
            lambda it: spoil(newest(it), "DELETE FROM record WHERE seq > (SELECT max(seq) - 2 FROM record)"),
            "were missing",
        ),
        (lambda it: without(it, it.anchors), "the anchors or their key were missing"),
        (lambda it: it.anchors.write_bytes(it.anchors.read_bytes().splitlines(keepends=True)[0]), "the anchors or"),
    ],
    ids=["tail cut", "anchors taken", "anchors cut"],
)
async def test_what_is_done_beside_a_running_console_is_put_on_record_by_it(segmented, hand, words):
    """Its next rows would stand where the old ones were."""
    layout = Layout(segmented)
    journal = await Journal.open(segmented, "test", SMALL)
    await act(journal, 3)
    hand(layout)
    await act(journal, 60)
    await journal.close()
    found = await verify.verify(segmented)
    assert not found.ok
    assert words in found.problem
    assert "says" in found.problem


@pytest.mark.parametrize("parts", [("anchors",), ("anchors", "key")], ids=["anchors", "both"])
async def test_new_anchors_do_not_hide_that_the_old_ones_went(tmp_path, parts):
    path = tmp_path / "audit.db"
    layout = Layout(path)
    for _ in range(2):
        journal = await Journal.open(path, "test")
        await act(journal, 5)
        await journal.close()
        if not (await verify.verify(path)).rows > 10:
            without(layout, *(getattr(layout, part) for part in parts))
    found = await verify.verify(path)
    assert found.problem == "row 11 says: the anchors or their key were missing, and new ones were started"


async def test_a_spoilt_reserve_is_no_trouble_for_the_walk(segmented):
    for spoilt in (b'{"row":5}\n\0', b'{"row":[1,"a","b"]}\n\0', b'{"row":[1,2,3]}\n\0', b"{\0"):
        with Layout(segmented).reserve.open("r+b") as file:
            file.write(spoilt)
        assert (await verify.verify(segmented)).ok


async def test_what_a_foreign_trigger_keeps_out_is_not_acknowledged(segmented):
    alter(newest(Layout(segmented)), DEAF)
    journal = await Journal.open(segmented, "test", SMALL)
    with pytest.raises(AuditUnavailable, match="keeps rows out"):
        await journal.begin("remove", "fake", "box-1", {})
    await act(journal, 1)
    await journal.close()
