from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sqlite3

import pytest

from sandbox_console.audit import chain, query, verify
from sandbox_console.audit.journal import Journal
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import AuditQuery, Outcome


@pytest.fixture
async def db(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, actor="test")
    for number in range(5):
        permit = await journal.begin("exec", "fake", "box", {"n": number})
        await journal.finish(permit, Outcome.OK, 1, {})
    await journal.close()
    return path


def tamper(path, *statements):
    """As one who can write the file: without its triggers."""
    connection = sqlite3.connect(path)
    for name in ("no_update", "no_delete", "only_next"):
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


async def test_an_untouched_log_holds(db):
    found = await verify.verify(db)
    assert (found.ok, found.rows, found.open_attempts, found.unknown) == (True, 10, 0, 0)


_INSERTED = """INSERT INTO record SELECT 11, ts_ns, 'note', 1, actor, session, request_id, action, backend, target,
    outcome, dur_us, body, prev, hash, mac FROM record WHERE seq = 10"""


@pytest.mark.parametrize(
    ("statement", "first_bad"),
    [
        *((f"UPDATE record SET {column} = {value} WHERE seq = 4", 4) for column, value in [
            ("ts_ns", 1), ("actor", "'x'"), ("session", "'x'"), ("request_id", "'x'"), ("action", "'x'"), ("backend", "'x'"),
            ("target", "'x'"), ("outcome", "'failed'"), ("dur_us", 9), ("body", "'{}x'"), ("hash", "x'00'"), ("prev", "x'00'"),
        ]),
        ("DELETE FROM record WHERE seq = 4", 4),
        ("DELETE FROM record WHERE seq = 1", 1),
        ("UPDATE record SET seq = seq + 100 WHERE seq > 3", 4),
        (_INSERTED, 11),
        ("UPDATE meta SET value = 'ff' WHERE key = 'genesis'", 1),
        ("UPDATE meta SET value = 'not hex' WHERE key = 'genesis'", 1),
        ("DELETE FROM meta", 1),
    ],
)  # fmt: skip
async def test_every_edit_is_found_at_its_row(db, statement, first_bad):
    tamper(db, statement)
    found = await verify.verify(db)
    assert not found.ok
    assert found.first_bad == first_bad
    await query.entries(db, AuditQuery())  # and the rest can be read


async def test_moved_rows_are_found(db):
    tamper(
        db,
        "UPDATE record SET seq = 99 WHERE seq = 3",
        "UPDATE record SET seq = 3 WHERE seq = 5",
        "UPDATE record SET seq = 5 WHERE seq = 99",
    )
    assert (await verify.verify(db)).first_bad == 3


async def test_a_cut_tail_is_found_by_the_anchor(db):
    tamper(db, "DELETE FROM record WHERE seq > 6")
    found = await verify.verify(db)
    assert (found.ok, found.first_bad) == (False, 7)
    assert "tail was cut" in found.problem


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET actor = 'x'", "DELETE FROM record",
        "INSERT OR REPLACE INTO record SELECT * FROM record WHERE seq = 3",
        "INSERT INTO record SELECT 50, ts_ns, kind, NULL, actor, session, request_id, action, backend, target, outcome, dur_us, body, prev, hash, mac FROM record WHERE seq = 1",
    ],
)  # fmt: skip
async def test_the_triggers_stop_mistakes(db, statement):
    connection = sqlite3.connect(db)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    connection.close()


async def test_attempts_of_a_live_session_stay_open_and_of_a_dead_one_become_unknown(tmp_path):
    path = tmp_path / "audit.db"
    first = await Journal.open(path, actor="a")
    permit = await first.begin("exec", "fake", "box", {})
    second = await Journal.open(path, actor="b")
    assert (await query.entry(path, permit.audit_id)).end is None
    await first.close()
    third = await Journal.open(path, actor="c")
    entry = await query.entry(path, permit.audit_id)
    assert entry.outcome == Outcome.UNKNOWN
    await second.close()
    await third.close()
    assert (await verify.verify(path)).unknown == 1


async def test_an_outcome_is_recorded_though_its_caller_is_cancelled(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, actor="a")
    for _ in range(50):
        permit = await journal.begin("exec", "fake", "box", {})
        task = asyncio.create_task(journal.finish(permit, Outcome.OK, 1, {}))
        await asyncio.sleep(0)
        task.cancel()
        [result] = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError)
        assert (await query.entry(path, permit.audit_id)).outcome == Outcome.OK
    await journal.close()


async def test_the_file_and_its_folder_are_private(db):
    assert db.stat().st_mode & 0o777 == 0o600


async def test_opening_can_be_cancelled_at_any_point(tmp_path):
    for turns in range(30):
        task = asyncio.create_task(Journal.open(tmp_path / "audit.db", actor="a"))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        task.cancel()
        [result] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(result, Journal):
            await result.close()
    journal = await Journal.open(tmp_path / "audit.db", actor="a")
    await journal.close()


async def test_a_garbage_file_can_neither_be_read_nor_keeps_a_thread(tmp_path):
    import threading

    path = tmp_path / "audit.db"
    path.write_bytes(b"no database at all, but long enough for a header" * 100)
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(AuditUnavailable):
            await query.entries(path, AuditQuery())
    async with asyncio.timeout(5):
        while threading.active_count() > before:
            await asyncio.sleep(0.01)


def test_a_hash_covers_the_json_of_the_columns():
    chance = random.Random(2)

    def text():
        return "".join(
            chr(chance.choice([*range(0x30), 0x22, 0x5C, 0x7F, 0xE9, 0x2028, 0xD800, 0x1F600])) for _ in range(9)
        )

    for _ in range(2000):
        columns = (
            7,
            2**62,
            text(),
            chance.choice([None, 0, 5]),
            *(text() for _ in range(7)),
            chance.choice([None, 3]),
            text(),
        )
        made = json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        assert chain.digest(b"p", columns) == hashlib.sha256(b"sandbox-console/audit/1\np" + made).digest()
    for odd in (b"", 1.0):
        with pytest.raises((TypeError, ValueError)):
            chain.digest(b"p", (odd, *columns[1:]))
        with pytest.raises((TypeError, ValueError)):
            chain.digest(b"p", (*columns[:-1], odd))
