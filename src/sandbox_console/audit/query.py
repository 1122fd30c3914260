"""The reading end: a snapshot of the log, never a lock on it. Works where the log cannot be written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiosqlite

from sandbox_console.audit import schema
from sandbox_console.audit.chain import first_break
from sandbox_console.audit.store import unavailable
from sandbox_console.audit.thread import connect, unit
from sandbox_console.errors import AuditUnavailable, NotFound
from sandbox_console.model.audit import AuditEntry, AuditQuery, AuditRow, Kind, Verification

_FIELDS = ", ".join(name for name in schema.COLUMNS if name != "prev")
_LIMITS = (
    "a tail cut off together with the file's own head is not seen",
    "whoever can write the file can rewrite the whole chain",
)


async def entries(path: Path, query: AuditQuery) -> list[AuditEntry]:
    """Attempts with their ends, newest first. Raises AuditUnavailable when the file cannot be read."""
    where, values = _where(query)
    async with _reading(path) as db:
        if db is None:
            return []
        sql = f"SELECT {_FIELDS} FROM record a WHERE kind = 'attempt'{where} ORDER BY seq DESC LIMIT ?"  # noqa: S608
        attempts = [_row(found) for found in await db.execute_fetchall(sql, (*values, query.limit))]
        return await _with_ends(db, attempts)


async def entry(path: Path, seq: int) -> AuditEntry:
    """One attempt by its seq, or the attempt that the row ``seq`` belongs to. Raises NotFound."""
    async with _reading(path) as db:
        found = list(await _rows(db, "seq = ?", seq)) if db else []
        if db is None or not found:
            raise NotFound(f"the audit log has no row {seq}", hint="sandbox-console audit ls")
        if found[0].ref is not None:
            found = await _rows(db, "seq = ?", found[0].ref)
        return (await _with_ends(db, found))[0]


async def verify(path: Path) -> Verification:
    """Walk the whole chain and check the file itself. Raises AuditUnavailable when the file cannot be read."""
    async with _reading(path) as db:
        if db is None:
            return Verification(ok=True, rows=0, head="", limits=_LIMITS)
        return await unit(db, lambda: _verify(db._conn))  # noqa: SLF001


def _verify(db: sqlite3.Connection) -> Verification:
    db.execute("BEGIN")
    [check] = db.execute("PRAGMA quick_check(1)").fetchone()
    start = _genesis(db)
    columns = ", ".join(schema.COLUMNS)
    rows = db.execute(f"SELECT {columns} FROM record ORDER BY seq")  # noqa: S608
    count, head, bad, problem = first_break(start, rows)
    if check != "ok" and bad is None:
        problem = f"the file is damaged: {check}"
    [unknown] = db.execute("SELECT count(*) FROM record WHERE kind = 'unknown'").fetchone()
    [ended] = db.execute("SELECT count(*) FROM record WHERE kind IN ('outcome', 'unknown')").fetchone()
    [attempts] = db.execute("SELECT count(*) FROM record WHERE kind = 'attempt'").fetchone()
    db.execute("ROLLBACK")
    return Verification(not problem, count, head.hex(), bad, problem, attempts - ended, unknown, _LIMITS)


def _genesis(db: sqlite3.Connection) -> bytes:
    """The hash before the first row; where it was taken out, one that no row follows."""
    found = db.execute("SELECT value FROM meta WHERE key = 'genesis'").fetchone()
    try:
        return bytes.fromhex(found[0]) if found else b""
    except ValueError:
        return b""


def _where(query: AuditQuery) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if query.target:
        # A create learns its sandbox's ref only in its outcome.
        parts.append("(a.target = ? OR a.seq IN (SELECT ref FROM record WHERE target = ? AND kind = 'outcome'))")
        values += [query.target, query.target]
    for column in ("action", "backend", "actor"):
        if value := getattr(query, column):
            parts.append(f"a.{column} = ?")
            values.append(value)
    if query.outcome:
        parts.append("EXISTS (SELECT 1 FROM record e WHERE e.ref = a.seq AND e.outcome = ?)")
        values.append(query.outcome)
    if query.since is not None:
        parts.append("a.ts_ns >= ?")
        values.append(int(query.since * 1e9))
    if query.before_seq is not None:
        parts.append("a.seq < ?")
        values.append(query.before_seq)
    return "".join(f" AND {part}" for part in parts), values


async def _with_ends(db: aiosqlite.Connection, attempts: list[AuditRow]) -> list[AuditEntry]:
    ends: dict[int, AuditRow] = {}
    notes: dict[int, list[AuditRow]] = {}
    for at in range(0, len(attempts), 500):
        some = [row.seq for row in attempts[at : at + 500]]
        for row in await _rows(db, f"ref IN ({','.join('?' * len(some))})", *some):
            if row.kind is Kind.NOTE:
                notes.setdefault(row.ref or 0, []).append(row)
            else:
                ends[row.ref or 0] = row
    return [AuditEntry(row, ends.get(row.seq), tuple(notes.get(row.seq, ()))) for row in attempts]


async def _rows(db: aiosqlite.Connection, where: str, *values: Any) -> list[AuditRow]:
    sql = f"SELECT {_FIELDS} FROM record WHERE {where} ORDER BY seq"  # noqa: S608
    return [_row(found) for found in await db.execute_fetchall(sql, values)]


def _row(found: sqlite3.Row | tuple[Any, ...]) -> AuditRow:
    seq, at_ns, kind, ref, actor, session, request, action, backend, target, outcome, dur, body, digest = tuple(found)
    return AuditRow(seq, at_ns, Kind(kind), ref, actor, session, request, action, backend, target, outcome, dur,
                    _body(body), bytes(digest).hex())  # fmt: skip


def _body(text: str) -> dict[str, Any]:
    """The body as data; one that was edited into something else is shown as it is: verify() finds it."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"damaged": text}


@asynccontextmanager
async def _reading(path: Path) -> AsyncIterator[aiosqlite.Connection | None]:
    """A read-only connection; None where there is no log yet."""
    try:
        if not path.exists() or path.stat().st_size == 0:
            yield None
            return
        db = await _connect(path)
        try:
            await unit(db, lambda: schema.refuse_newer(db._conn))  # noqa: SLF001
            yield db
        finally:
            await db.close()
    except (sqlite3.Error, OSError) as error:
        raise unavailable(error, path) from error


async def _connect(path: Path) -> aiosqlite.Connection:
    # Where the folder is not writable SQLite cannot make its -shm file: an immutable read still works.
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        db = await connect(f"file:{quote(str(path))}?{mode}", uri=True)
        try:
            await db.execute_fetchall("SELECT 1 FROM sqlite_schema LIMIT 1")
        except sqlite3.OperationalError:
            await db.close()
            continue
        except BaseException:  # a connection left open keeps its thread, and the thread the process
            await db.close()
            raise
        return db
    raise AuditUnavailable(f"the audit log {path} cannot be read", hint=f"check the permissions of {path.parent}")
