"""Rows, heads and anchors made, cut or put back by one who can write the files: with and without the key."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing

import pytest
from tests.audit.conftest import SMALL, act, make_old, spoil
from tests.audit.test_faults import rows_and_meta

from sandbox_console.audit import chain, rows, schema, segments, verify
from sandbox_console.audit.anchors import Anchors
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.keys import Keys, PublicKey
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reserve import Reserve
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.audit.rows import Draft
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import Kind, Outcome

FORGED = Draft(Kind.NOTE, "user:nobody", "s", "exec", "fake", "box", 1)


@pytest.fixture
async def log(tmp_path):
    """A closed log of 20 rows; gives its layout."""
    layout = Layout(tmp_path / "one" / "audit.db")
    journal = await Journal.open(layout.first, "test")
    await act(journal, 10)
    await journal.close()
    return layout


def forge(layout, mac):
    """Append a well-chained row to the newest segment, past its triggers' eyes."""
    with closing(sqlite3.connect(layout.segment(layout.newest()), isolation_level=None)) as db:
        rows.insert(db, rows.chained([FORGED], rows.head(db), mac))


def cut(path, last):
    """Take the rows behind ``last``, and leave the triggers as they were."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        [made] = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'no_delete'").fetchone()
        for statement in ("DROP TRIGGER no_delete", f"DELETE FROM record WHERE seq > {last}", made):
            db.execute(statement)


async def problem(layout, public=None):
    found = await verify.verify(layout.first, public)
    assert found.ok is not bool(found.problem)
    return found.problem


async def test_a_row_forged_behind_the_last_anchor_needs_the_key(log):
    forge(log, lambda _: bytes(32))
    assert await problem(log) == "row 21 has no signature of this log's key: it was forged"


async def test_a_forged_row_is_not_blessed_by_the_next_console(log):
    forge(log, lambda _: bytes(32))
    journal = await Journal.open(log.first, "next")
    await act(journal, 60)
    await journal.close()
    assert "row 21 has no signature" in await problem(log)


async def test_with_the_key_it_is_what_the_document_says_is_not_protected(log):
    keys = Keys(log.key)
    keys.load()
    forge(log, keys.of_row)
    assert not await problem(log)


async def test_the_last_anchor_deleted_alone_is_told(log):
    lines = log.anchors.read_bytes().splitlines(keepends=True)
    log.anchors.write_bytes(b"".join(lines[:-1]))
    assert "anchor" in await problem(log)
    journal = await Journal.open(log.first, "next")
    await act(journal, 1)
    await journal.close()
    assert "says: the anchors or their key were missing" in await problem(log), "the next one does not hide it"


@pytest.mark.parametrize("count", [1, 2, 5, 19, 20])
async def test_a_tail_cut_with_its_anchors_is_told_by_the_head_and_by_the_next_console(log, count):
    cut(log.first, 20 - count)
    log.anchors.write_bytes(b"")
    assert "the tail was cut: row 20 was written" in await problem(log)
    journal = await Journal.open(log.first, "next")
    await act(journal, 30)
    await journal.close()
    assert f"row {21 - count} says: rows that a console had written before it were missing" in await problem(log)


@pytest.mark.parametrize("left", ["missing", "empty", "garbage", "changed", "padded", "of another log", "older"])
async def test_a_head_that_is_not_the_consoles_is_told(log, tmp_path, left):
    held = log.head.read_bytes()
    match left:
        case "missing":
            log.head.unlink()
        case "of another log":
            other = Layout(tmp_path / "other" / "audit.db")
            shutil.copytree(log.folder, other.folder)
            for part in (other.first, other.anchors, other.head):
                part.unlink()
            journal = await Journal.open(other.first, "test")
            await act(journal, 3)
            await journal.close()
            shutil.copy(other.head, log.head)
        case "older":  # what a power cut may leave: it proves nothing by itself, and what it vouches for holds
            journal = await Journal.open(log.first, "next")
            await act(journal, 1)
            await journal.close()
            log.head.write_bytes(held)
        case _:
            made = {"empty": b"", "garbage": b"x" * 512, "changed": held.replace(b'"seq":20', b'"seq":10'),
                    "padded": held[:-2] + b"x\n"}  # fmt: skip
            log.head.write_bytes(made[left])
    found = await verify.verify(log.first)
    assert ("head.json" in found.problem or "rewritten" in found.problem) is (left != "older")
    told = [limit for limit in found.limits if "whether head.json was set back: it is from row 20" in limit]
    assert bool(told) is (left == "older")


async def test_a_head_is_not_called_set_back_while_a_console_writes(log):
    journal = await Journal.open(log.first, "next")
    writing = asyncio.create_task(act(journal, 300))
    while not writing.done():
        found = await verify.verify(log.first)
        assert found.ok, found.problem
        assert not [limit for limit in found.limits if "set back" in limit]
    await writing
    await journal.close()


@pytest.mark.parametrize("what", ["garbage", "a page"])
async def test_trailing_garbage_is_told_beside_a_write_ahead_log(log, what):
    """It was said that every byte was compared, though nobody had looked behind the last page."""
    journal = await Journal.open(log.first, "next")
    await act(journal, 3)
    wal = log.first.with_name("audit.db-wal")
    try:
        assert wal.stat().st_size
        before = await verify.verify(log.first)
        assert (before.ok, before.compared) == (True, 0)
        with closing(sqlite3.connect(f"file:{log.first}?mode=ro", uri=True)) as db:
            [pages] = db.execute("PRAGMA page_count").fetchone()
        more = pages * 4096 + (7 if what == "garbage" else 4096)  # by another process: closing it here takes locks away
        subprocess.run(["truncate", "-s", str(more), log.first], check=True)
        assert f"{7 if what == 'garbage' else 4096} bytes that do not belong to it" in await problem(log)
    finally:
        await journal.close()


async def test_a_write_ahead_log_is_not_said_to_be_compared(log, tmp_path):
    """What it replaces in the file is seen by nobody, and so are its own bytes that no row uses."""
    journal = await Journal.open(log.first, "next")
    await act(journal, 3)
    shutil.copytree(log.folder, tmp_path / "killed")
    await journal.close()
    assert (await verify.verify(log.first)).compared == 1
    copy = Layout(tmp_path / "killed/audit.db")
    shutil.copy(log.pages, copy.pages)  # those of the end, which a reader prevented from being moved into the file
    shutil.copy(log.anchors, copy.anchors)
    shutil.copy(log.head, copy.head)
    found = await verify.verify(copy.first)
    assert found.compared == 0
    assert any("no row uses" in limit for limit in found.limits), found.limits


async def test_a_new_log_cannot_be_taken_back_to_the_old_form(log):
    """Whose rows need no key: a log of the old form in its place, without anchors."""
    console = schema.Head
    for part in (log.first, log.head, log.anchors):
        part.unlink()
    with closing(sqlite3.connect(log.first, isolation_level=None)) as db:
        make_old(db, console("f" * 32, 1, chain.genesis("f" * 32), 1))
        rows.insert(db, rows.chained([FORGED], rows.head(db), None))
    log.anchors.touch()
    assert await problem(log) == "segment 1 is of an older form than this log has"


async def test_rows_forged_in_the_reserve_are_told_and_not_taken_over(log):
    with closing(sqlite3.connect(log.first)) as db:
        made = rows.chained([FORGED], rows.head(db), lambda _: bytes(32))
    Reserve(log.reserve).add(made)
    assert "row 21 has no signature" in await problem(log)
    journal = await Journal.open(log.first, "next")
    await act(journal, 1)
    await journal.close()
    with closing(sqlite3.connect(log.first)) as db:
        assert not db.execute("SELECT 1 FROM record WHERE actor = 'user:nobody'").fetchall()


@pytest.mark.parametrize("what", ["segment", "anchors", "manifest"])
async def test_trailing_garbage_is_told(segmented, what):
    layout = Layout(segmented)
    path = {"segment": layout.segment(1), "anchors": layout.anchors, "manifest": layout.manifest(1)}[what]
    with path.open("ab") as file:
        file.write(b"garbage")
    assert await problem(layout)


async def test_a_part_of_an_anchor_is_what_a_power_cut_leaves(log):
    with log.anchors.open("ab") as file:
        file.write(log.anchors.read_bytes().splitlines()[0][:100])
    found = await verify.verify(log.first)
    assert found.ok, found.problem
    assert any("last anchor is incomplete" in limit for limit in found.limits)


REST = {
    "a beginning that none has": b'{"at_ns":zzz',
    "a beginning with NULs in it": b'{"at_ns":\0,"console"',
    "text and a NUL": b"abc\0",
    "a beginning of another log's": b'{"at_ns":1795443995110268629,"console":"' + b"f" * 32,
    "a key put in": b'{"at_ns":1795443995110268629,"x":',
    "more than a line": b"q" * 5000,
    "more NULs than a line": bytes(2000),
}


@pytest.mark.parametrize("rest", REST)
async def test_bytes_behind_the_last_anchor_that_no_crash_leaves_are_told_also_by_the_next_console(log, rest):
    with log.anchors.open("ab") as file:
        file.write(REST[rest])
    assert await problem(log) == f"{len(REST[rest])} bytes that are no part of an anchor follow the last one"
    await more(log)
    assert "bytes that are no part of an anchor followed the last anchor" in await problem(log)
    with closing(sqlite3.connect(log.first)) as db:
        told = db.execute("SELECT body FROM record WHERE action = 'anchors-changed'").fetchall()
    assert [json.loads(body)["bytes"] for [body] in told] == [len(REST[rest])]


async def more(layout):
    """One more session, and so one more anchor."""
    journal = await Journal.open(layout.first, "next")
    await act(journal, 1)
    await journal.close()


@pytest.mark.parametrize("end", ["whole", "unfollowing", "forged"])
async def test_a_whole_anchor_without_its_line_feed_counts_only_if_it_is_the_next(log, end):
    await more(log)
    before, *_, last = log.anchors.read_bytes().splitlines(keepends=True)
    assert before != last
    whole = {"whole": last[:-1], "unfollowing": last + before[:-1], "forged": last[:-3] + b'0"}'}[end]
    log.anchors.write_bytes(log.anchors.read_bytes()[: -len(last)] + whole)
    log.head.unlink()
    found = await verify.verify(log.first)
    told = "no part of an anchor" in found.problem
    assert (told, any("last anchor is incomplete" in limit for limit in found.limits)) == (
        end != "whole",
        end == "whole",
    )


async def test_every_beginning_of_the_next_line_is_what_a_crash_leaves(log):
    await more(log)
    *_, last = log.anchors.read_bytes().splitlines(keepends=True)
    log.anchors.write_bytes(log.anchors.read_bytes()[: -len(last)])
    kept, anchors = log.anchors.read_bytes(), Anchors(log.anchors, log.key)
    for size in range(len(last)):
        for nuls in (0, 7):
            log.anchors.write_bytes(kept + last[:size] + bytes(nuls))
            assert (anchors.foreign(), anchors.read()[1], anchors.torn) == (0, "", size + nuls > 0)
    missed = [
        at for at in range(len(last) - 1) if not spoilt_end(log, anchors, kept, last[:at] + b"#" + last[at + 1 : -1])
    ]
    assert not missed


def spoilt_end(log, anchors, kept, rest):
    log.anchors.write_bytes(kept + rest)
    return anchors.foreign() == len(rest)


async def test_a_letter_of_the_key_in_the_other_case_is_told(log):
    key = log.key.read_text()
    at = next(at for at, letter in enumerate(key) if letter in "abcdef")
    log.key.write_text(key[:at] + key[at].upper() + key[at + 1 :])
    assert "contains no key" in await problem(log)


@pytest.mark.parametrize("what", ["anchors", "head", "manifest", "segment"])
async def test_flipped_bits_are_told_or_change_nothing(log, segmented, what):
    """75 in each; the one flip that changes nothing is in free space of the database."""
    layout = Layout(segmented) if what == "manifest" else log
    path = {"anchors": layout.anchors, "head": layout.head, "manifest": layout.manifest(1), "segment": layout.first}
    original, chance, missed = path[what].read_bytes(), random.Random(9), []
    whole = rows_and_meta(layout.first)
    for _ in range(75):
        at, bit = chance.randrange(len(original)), 1 << chance.randrange(8)
        spoilt = bytearray(original)
        spoilt[at] ^= bit
        path[what].write_bytes(spoilt)
        for end in ("-wal", "-shm"):
            layout.first.with_name(layout.first.name + end).unlink(missing_ok=True)
        try:
            found = await problem(layout)
        except AuditUnavailable:
            continue
        if not found and (what != "segment" or rows_and_meta(layout.first) != whole):
            missed.append((at, bit))
    assert not missed


async def test_another_machine_verifies_by_the_public_key(segmented):
    layout = Layout(segmented)
    public = PublicKey(Keys(layout.key).public())
    layout.key.unlink()
    found = await verify.verify(segmented, public)
    assert found.ok, found.problem
    assert found.anchors > 2
    assert any("with the public key" in limit for limit in found.limits)
    newest = layout.segment(layout.newest())
    spoil(newest, "UPDATE record SET actor = 'x' WHERE seq = (SELECT min(seq) + 3 FROM record)")
    assert "edited" in await problem(layout, public)


async def test_what_is_forged_for_another_machine_is_told(segmented, tmp_path):
    layout = Layout(segmented)
    public = PublicKey(Keys(layout.key).public())
    other = Keys(tmp_path / "other.key")
    other.make()
    assert "signature is not valid" in await problem(layout, PublicKey(other.public()))
    shutil.copy(tmp_path / "other.key", layout.key)
    for part in (layout.anchors, layout.head, *layout.folder.glob("*.manifest.json"), *layout.folder.glob("*.db")):
        part.unlink()
    journal = await Journal.open(segmented, "forger", SMALL)
    await act(journal, 150)
    await journal.close()
    assert not await problem(layout), "the forger's own key"
    assert await problem(layout, public)
    lines = layout.anchors.read_text().splitlines()
    stripped = [line[: line.index(',"sig":')] + "}" if ',"sig":' in line else line for line in lines]
    layout.anchors.write_text("\n".join(stripped) + "\n")
    assert await problem(layout, public)


async def test_one_row_is_proved_by_its_neighbours_hashes_alone(log):
    """From row 7, its link before, and the hashes of rows 8 to 20 to the head that an anchor signs."""
    with closing(sqlite3.connect(log.first)) as db:
        content = db.execute(f"SELECT {', '.join(schema.COLUMNS)} FROM record WHERE seq >= 7 ORDER BY seq").fetchall()
    row, link = content[0][: chain.PREV], content[0][chain.PREV]
    neighbours = [chain.row_hash(other[: chain.PREV]) for other in content[1:]]
    for hashed in (chain.row_hash(row), *neighbours):
        link = chain.link(link, hashed)
    assert link.hex() == (await verify.verify(log.first)).head


async def test_a_log_of_the_old_form_goes_on_in_the_new_one(old):
    layout = Layout(old)
    journal = await Journal.open(old, "next", SMALL)
    await act(journal, 200)
    await journal.close()
    found = await verify.verify(old)
    assert found.ok, found.problem
    forms = []
    for index in layout.indices():
        with closing(sqlite3.connect(layout.segment(index))) as db:
            forms.append(schema.form(db))
    assert forms[0] == 1
    assert set(forms[1:]) == {2}
    lines = layout.anchors.read_bytes().splitlines()
    assert b'"sig"' not in lines[0], "an older console must be able to read it"
    assert b'"sig"' in lines[-2] + lines[-1]
    public = PublicKey(Keys(layout.key).public())
    layout.key.unlink()
    found = await verify.verify(old, public)
    assert found.ok, found.problem


@pytest.mark.parametrize("what", ["link", "open", "short"])
async def test_a_key_that_others_could_know_is_refused(log, tmp_path, what):
    secret = log.key.read_bytes()
    if what == "link":
        (tmp_path / "elsewhere").write_bytes(secret)
        log.key.unlink()
        log.key.symlink_to(tmp_path / "elsewhere")
    elif what == "open":
        log.key.chmod(0o640)
    else:
        log.key.write_bytes(b"00")
    assert "anchor.key" in await problem(log)
    with pytest.raises(AuditUnavailable, match=r"anchor.key"):
        await Journal.open(log.first, "test")


async def test_a_dangling_link_in_the_keys_place_makes_no_file_elsewhere(tmp_path):
    layout = Layout(tmp_path / "log" / "audit.db")
    layout.folder.mkdir()
    layout.key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuditUnavailable):
        await Journal.open(layout.first, "test")
    assert not (tmp_path / "elsewhere").exists()


async def test_a_key_exchanged_under_a_running_console_is_put_on_record(log):
    journal = await Journal.open(log.first, "running")
    await act(journal, 2)
    log.key.rename(log.folder / "aside")
    Keys(log.key).make(2)
    permit = await journal.begin("exec", "fake", "box", {})
    await journal.finish(permit, Outcome.OK, 1, {})
    await journal.close()
    assert await problem(log)
    with closing(sqlite3.connect(log.first)) as db:
        told = db.execute("SELECT body FROM record WHERE action = 'anchors-missing'").fetchall()
    assert '"missing":["anchor.key"]' in told[0][0]


async def test_sessions_in_a_row_are_signed_once_a_minute_and_anchored_each(log, monkeypatch):
    for _ in range(3):
        journal = await Journal.open(log.first, "next")
        await act(journal, 1)
        await journal.close()
    lines = log.anchors.read_bytes().splitlines()
    assert [b'"sig"' in line for line in lines] == [True, False, False, False]
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 120 * 10**9)
    journal = await Journal.open(log.first, "next")
    await act(journal, 1)
    await journal.close()
    assert b'"sig"' in log.anchors.read_bytes().splitlines()[-1]


def plant(path, name, made):
    """Have what SQLite would not make: an object under a name of SQLite's own."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(made.format("evil"))
        db.execute("PRAGMA writable_schema = ON")
        sql = (
            "UPDATE sqlite_schema SET name = ?, tbl_name = iif(type = 'view', ?, tbl_name), sql = ? WHERE name = 'evil'"
        )
        db.execute(sql, (name, name, made.format(name)))


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("sqlite_stat9", "CREATE TRIGGER {} AFTER INSERT ON record BEGIN SELECT 1; END"),
        ("sqlite_autoindex_x", "CREATE VIEW {} AS SELECT 1"),
    ],
)
async def test_what_is_put_in_under_a_name_of_sqlites_is_told(log, name, made):
    plant(log.first, name, made)
    assert f"{name} was put in" in await problem(log)


async def test_what_analyze_makes_is_sqlites_own(log):
    with closing(sqlite3.connect(log.first)) as db:
        db.execute("ANALYZE")
    assert not await problem(log)


async def test_the_first_versions_trigger_excuses_nothing_in_the_new_form(log):
    with closing(sqlite3.connect(log.first, isolation_level=None)) as db:
        for statement in ("DROP TRIGGER only_next", schema._OLD_ONLY_NEXT, "DROP INDEX by_time"):
            db.execute(statement)
    assert "is not as made" in await problem(log)


async def test_a_segment_under_a_second_name_is_not_read_twice(segmented):
    layout = Layout(segmented)
    whole = (await verify.verify(segmented)).rows
    shutil.copy(layout.first, layout.folder / "audit-000001.db")
    assert (await verify.verify(segmented)).rows == whole


@pytest.mark.parametrize("then", ["taken away", "mended, and the next taken"])
async def test_rows_that_a_planted_damage_took_stay_missed(log, then):
    """One who spoils the file has the next console sign that it was damaged."""
    held, head, anchors = (path.read_bytes() for path in (log.first, log.head, log.anchors))
    log.first.write_bytes(b"x" * 100 + held[100:])
    journal = await Journal.open(log.first, "next")
    await act(journal, 3)
    await journal.close()
    assert log.newest() == 2
    if then == "taken away":
        log.first.unlink()
    else:
        log.segment(2).unlink()
        for path, content in ((log.first, held), (log.head, head), (log.anchors, anchors)):
            path.write_bytes(content)
    assert "segment 1 was damaged and left" in await problem(log)


DEEP = "[" * 200_000


@pytest.mark.parametrize("what", ["manifest", "anchor", "reserve"])
async def test_what_no_console_writes_is_told_and_ends_no_walk(segmented, what):
    layout = Layout(segmented)
    if what == "manifest":
        layout.manifest(1).write_text(DEEP)
    elif what == "anchor":
        *lines, last = layout.anchors.read_text().splitlines()
        lines.append(json.dumps(json.loads(last) | {"mac": "\u00e9"}, separators=(",", ":")))
        layout.anchors.write_text("\n".join(lines) + "\n")
    else:  # a type that none has, and no hash, as if both were unknown
        with closing(sqlite3.connect(layout.segment(layout.newest()))) as db:
            seq, link = rows.head(db)
        columns = [seq + 1, "x", "note", None, "a", "s", "r", "exec", "b", "t", "", None, "{}", link.hex(), "", ""]
        with layout.reserve.open("r+b") as file:
            file.write(json.dumps({"row": columns}).encode() + b"\n\0")
    assert await problem(layout)


async def test_depth_in_the_reserve_or_the_cursor_ends_no_walk(log):
    whole = (await verify.verify(log.first)).rows
    log.cursor.write_text(DEEP)
    with log.reserve.open("r+b") as file:
        file.write(b'{"row":' + DEEP.encode() + b"\n\0")
    assert Reserve(log.reserve).holding
    assert (await verify.verify(log.first)).rows == whole


@pytest.mark.parametrize("hand", [lambda told: told.clear(), lambda told: told.update(sig=5)], ids=["empty", "number"])
async def test_a_manifest_that_is_none_is_told_by_the_public_key(segmented, hand):
    layout = Layout(segmented)
    told = json.loads(layout.manifest(1).read_text())
    hand(told)
    layout.manifest(1).write_text(segments._rendered(told))
    assert "manifest.json was changed" in await problem(layout, PublicKey(Keys(layout.key).public()))


async def test_a_manifest_without_its_signature_is_told_by_the_public_key(segmented):
    layout = Layout(segmented)
    told = json.loads(layout.manifest(1).read_text())
    layout.manifest(1).write_text(segments._rendered({name: told[name] for name in told if name != "sig"}))
    assert "manifest.json was changed" in await problem(layout, PublicKey(Keys(layout.key).public()))


async def test_a_forged_row_excuses_no_missing_segment_by_the_public_key(segmented):
    layout = Layout(segmented)
    draft = Draft(Kind.CHECKPOINT, "t", "s", "retention", body={"removed": [{"segment": 1}]})
    with closing(sqlite3.connect(layout.segment(layout.newest()), isolation_level=None)) as db:
        rows.insert(db, rows.chained([draft], rows.head(db), lambda _: bytes(32)))
    layout.first.unlink()
    assert "segment 1 is missing" in await problem(layout, PublicKey(Keys(layout.key).public()))


async def test_what_the_retention_took_is_signed_before_it_goes(tmp_path):
    """So that the row excuses it by the public key too, also while the console runs."""
    layout = Layout(tmp_path / "audit.db")
    journal = await Journal.open(layout.first, "test", RetentionPolicy(segment_bytes=SMALL.segment_bytes, segments=2))
    while layout.first.exists():
        await act(journal, 10)
    assert not await problem(layout, PublicKey(Keys(layout.key).public()))
    await journal.close()


@pytest.mark.parametrize("part", ["anchors", "cursor", "head", "reserve", "manifest", "segment"])
async def test_a_pipe_in_the_place_of_a_part_hangs_nobody(segmented, part):
    layout = Layout(segmented)
    path = getattr(layout, part)(1) if part in ("manifest", "segment") else getattr(layout, part)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(AuditUnavailable, match=f"{path.name} is not a file") as told:
        await asyncio.wait_for(verify.verify(segmented), 30)
    assert str(layout.folder) in told.value.hint


async def test_a_note_that_would_fill_the_memory_is_not_read(segmented):
    os.truncate(Layout(segmented).manifest(1), 1 << 40)
    with pytest.raises(AuditUnavailable, match="bytes, and a note of ours never"):
        await verify.verify(segmented)


_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def changed(path, *statements):
    """Run statements on a copy whose triggers were taken out."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA legacy_alter_table = ON")
        for [name] in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize(
    "statements",
    [
        *(pytest.param([f"ALTER TABLE {name} RENAME TO was",
                        f"CREATE VIEW {name} AS {_ENDLESS} SELECT was.* FROM was, n"], id=f"{name} is an endless view")
          for name in ("record", "meta", "carried")),
        pytest.param(["ALTER TABLE record ADD COLUMN more TEXT AS (hex(zeroblob(30000000)))"], id="a computed column"),
    ],
)  # fmt: skip
async def test_a_copy_whose_tables_are_programs_is_not_read(log, statements):
    """Another machine that verified such a copy was held for ever."""
    changed(log.first, *statements)
    with pytest.raises(AuditUnavailable, match="is no plain table"):
        async with asyncio.timeout(60):
            await verify.verify(log.first)


async def test_a_value_that_is_larger_than_any_of_ours_is_told_and_not_loaded(log):
    changed(log.first, "UPDATE record SET body = hex(zeroblob(40000000)) WHERE seq = 2")
    assert "too big" in await problem(log)


@pytest.mark.parametrize("name", ["anchors.jsonl", "reserve", "head.json"])
async def test_a_file_of_a_copy_that_would_fill_the_memory_is_not_read(log, name):
    os.truncate(log.folder / name, 8 << 30)  # a hole: it takes no disk
    with pytest.raises(AuditUnavailable, match=f"{name} has 8589934592 bytes, and (a note|one) of ours never"):
        await verify.verify(log.first)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000])
async def test_json_that_is_too_deep_is_told(log, text):
    for name in ("anchors.jsonl", "head.json"):
        held = (log.folder / name).read_bytes()
        (log.folder / name).write_text(text + "\n")
        assert await problem(log)
        (log.folder / name).write_bytes(held)
    changed(log.first, "DELETE FROM record WHERE seq > 2")
    how = "UPDATE record SET kind = 'checkpoint', action = 'retention', ref = NULL, body = '{}' WHERE seq = 2"
    changed(log.first, how.format(text))
    assert await problem(log)
