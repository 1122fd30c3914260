"""Attempts with their ends, over all segments, newest first."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiosqlite

from sandbox_console.audit import schema
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reading import reading
from sandbox_console.errors import AuditUnavailable, NotFound
from sandbox_console.model.audit import AuditEntry, AuditQuery, AuditRow, Kind

_FIELDS = ", ".join(name for name in schema.COLUMNS if name != "prev")
_AT_ONCE = 500
_RARE = 5000
"""Ends that are listed in under 5 ms; of a million rows a commoner end is met within the newest 10,000 attempts."""

Ends = dict[int, list[AuditRow]]


async def entries(path: Path, query: AuditQuery) -> list[AuditEntry]:
    """Attempts with their ends, newest first. Raises AuditUnavailable when a segment cannot be read."""
    layout = Layout(path)
    found: list[AuditEntry] = []
    later: Ends = {}  # ends of attempts that began in an older segment than they ended in
    for index in reversed(layout.indices()):
        async with reading(layout.segment(index)) as db:
            if db is None:
                continue
            found += await _of_segment(db, query, query.limit - len(found), later)
            if len(found) >= query.limit:
                break
            await _note_later(db, later)
    return found


async def entry(path: Path, seq: int) -> AuditEntry:
    """One attempt by its seq, or the attempt that the row ``seq`` belongs to. Raises NotFound."""
    layout = Layout(path)
    indices = layout.indices()
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(reading(layout.segment(index))) for index in indices]
        segments = [db for db in opened if db is not None]
        rows = [row for db in segments for row in await _rows(db, "seq = ?", seq)]
        if rows and rows[0].ref is not None:
            rows = [row for db in segments for row in await _rows(db, "seq = ?", rows[0].ref)]
        if not rows:
            raise NotFound(f"the audit log has no row {seq}", hint="sandbox-console audit ls")
        ends = [row for db in segments for row in await _rows(db, "ref = ?", rows[0].seq)]
        return _entry(rows[0], ends)


async def _of_segment(db: aiosqlite.Connection, query: AuditQuery, limit: int, later: Ends) -> list[AuditEntry]:
    where, values = _where(query, later, rare=not query.outcome or await _is_rare(db, query.outcome))
    sql = f"SELECT {_FIELDS} FROM record a WHERE kind = 'attempt'{where} ORDER BY seq DESC LIMIT ?"  # noqa: S608
    attempts = [row(found) for found in await db.execute_fetchall(sql, (*values, limit))]
    ends: Ends = {}
    for at in range(0, len(attempts), _AT_ONCE):
        some = [one.seq for one in attempts[at : at + _AT_ONCE]]
        for end in await _rows(db, f"ref IN ({','.join('?' * len(some))})", *some):
            ends.setdefault(end.ref or 0, []).append(end)
    return [_entry(one, ends.get(one.seq, []) + later.get(one.seq, [])) for one in attempts]


async def _note_later(db: aiosqlite.Connection, later: Ends) -> None:
    """Take note of ends here whose attempts are in an older segment."""
    [[first]] = await db.execute_fetchall("SELECT coalesce(min(seq), 0) FROM record")
    for one in await _rows(db, "ref < ?", first) if first > 1 else ():
        later.setdefault(one.ref or 0, []).append(one)


def _entry(attempt: AuditRow, rest: Sequence[AuditRow]) -> AuditEntry:
    notes = tuple(one for one in rest if one.kind is Kind.NOTE)
    end = next((one for one in rest if one.kind in (Kind.OUTCOME, Kind.UNKNOWN)), None)
    return AuditEntry(attempt, end, notes)


async def _is_rare(db: aiosqlite.Connection, outcome: str) -> bool:
    """Whether so few ended so that listing those is cheaper than looking at the newest attempts one by one."""
    wanted = outcome.split(",")
    some = f"SELECT 1 FROM record WHERE outcome IN ({_marks(wanted)}) AND outcome <> '' LIMIT {_RARE}"  # noqa: S608
    [[count]] = await db.execute_fetchall(f"SELECT count(*) FROM ({some})", wanted)  # noqa: S608
    return bool(count < _RARE)


def _where(query: AuditQuery, later: Ends, *, rare: bool) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if query.target:
        # A create learns its sandbox's ref only in its outcome.
        also = _late(later, lambda end: end.target == query.target)
        parts.append(f"(a.target = ? OR a.seq IN (SELECT ref FROM record WHERE target = ? AND kind = 'outcome'){also})")  # noqa: S608
        values += [query.target, query.target]
    for column in ("action", "backend", "actor"):
        if value := getattr(query, column):
            parts.append(f"a.{column} = ?")
            values.append(value)
    if query.outcome:
        wanted = query.outcome.split(",")
        also = _late(later, lambda end: end.outcome in wanted)
        fits = f"outcome IN ({_marks(wanted)})"
        listed = f"a.seq IN (SELECT ref FROM record WHERE {fits} AND outcome <> '')"  # noqa: S608
        looked = f"EXISTS (SELECT 1 FROM record e WHERE e.ref = a.seq AND e.{fits})"  # noqa: S608
        parts.append(f"({listed if rare else looked}{also})")
        values += wanted
    if query.text:
        parts.append(f"({' OR '.join(f'a.{column} LIKE ? ESCAPE ?' for column in ('target', 'body', 'action'))})")
        values += [f"%{_escaped(query.text)}%", "\\"] * 3
    for column, sign, moment in (("ts_ns", ">=", query.since), ("ts_ns", "<", query.until)):
        if moment is not None:
            parts.append(f"a.{column} {sign} ?")
            values.append(int(moment * 1e9))
    if query.before_seq is not None:
        parts.append("a.seq < ?")
        values.append(query.before_seq)
    return "".join(f" AND {part}" for part in parts), values


def _marks(values: Sequence[str]) -> str:
    return ",".join("?" * len(values))


def _late(later: Ends, fits: Any) -> str:
    """Attempts whose end, in a newer segment, fits: as another branch of a condition."""
    seqs = [str(seq) for seq, ends in later.items() if any(fits(end) for end in ends if end.kind is not Kind.NOTE)]
    return f" OR a.seq IN ({','.join(seqs)})" if seqs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


async def _rows(db: aiosqlite.Connection, where: str, *values: Any) -> list[AuditRow]:
    # With "+" SQLite does not walk the whole table for the order's sake: there are few rows, and an index has them.
    sql = f"SELECT {_FIELDS} FROM record WHERE {where} ORDER BY +seq"  # noqa: S608
    return [row(found) for found in await db.execute_fetchall(sql, values)]


def row(found: sqlite3.Row | tuple[Any, ...]) -> AuditRow:
    """A row of the table, without ``prev``, as the model has it. Raises AuditUnavailable for one of no known kind."""
    seq, at_ns, kind, ref, actor, session, request, action, backend, target, outcome, dur, body, digest = tuple(found)
    try:
        return AuditRow(seq, at_ns, Kind(kind), ref, actor, session, request, action, backend, target, outcome, dur,
                        _body(body), bytes(digest).hex())  # fmt: skip
    except ValueError:
        raise AuditUnavailable(f"row {seq} of the audit log has the unknown kind {kind!r}") from None


def _body(text: str) -> dict[str, Any]:
    """The body as data; one that was edited into something else is shown as it is: verify() finds it."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"damaged": text}
