"""Searches for attempts and their outcomes, over all segments, newest first."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from sandbox_console.audit import rows as rows_
from sandbox_console.audit import schema, segment_index, waiting_rows
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reader import ask
from sandbox_console.audit.reserve import Reserve
from sandbox_console.errors import AuditUnavailable, NotFound, UsageError
from sandbox_console.model.audit import AuditEntry, AuditQuery, AuditRow, Kind

T = TypeVar("T")

_FIELDS = ", ".join(name for name in schema.COLUMNS if name != "prev")
_AT_ONCE = 500
_RARE = 5000
"""So many ends are listed in under 5 ms. In a million rows, a more common end is among the newest 10,000 attempts."""

_TEXT_MOST = 10_000
"""Characters. SQLite accepts patterns of up to 50,000 bytes."""

Ends = dict[int, list[AuditRow]]
Spans = list[segment_index.Span] | None


async def entries(path: Path, query: AuditQuery) -> list[AuditEntry]:
    """Attempts with their ends, newest first. Raises AuditUnavailable when a segment cannot be read.

    The first page begins with all that waits for a place in the log; these are not counted to the limit.
    """
    _refuse_long(query.text)
    layout = Layout(path)
    found: list[AuditEntry] = []
    later: Ends = {}  # ends of attempts that began in an older segment
    waiting = await _ask_waiting(layout, lambda db: _waiting(db, query, later)) if _storable(query) else []
    passed: list[int] = []  # segments without the text are skipped, as opening one takes 1 ms
    if _storable(query):
        found += await _ask_reserve(path, lambda db: _of_segment(db, query, None, query.limit, later))
    for index in reversed(layout.indices() if _storable(query) else []):
        if len(found) >= query.limit:
            break
        spans = await asyncio.to_thread(segment_index.spans, layout, index, query.text) if query.text else None
        if spans == []:
            passed.append(index)
            continue
        while passed:
            await ask(layout.segment(passed.pop(0)), _note_later, later)
        some = await ask(layout.segment(index), _of_segment, query, spans, query.limit - len(found), later)
        found += some or []
    return [*waiting, *found]


async def entry(path: Path, seq: int) -> AuditEntry:
    """The attempt with this seq, or the one that the row ``seq`` belongs to. Raises NotFound."""
    rows = await _everywhere(path, "seq = ?", seq)
    if rows and rows[0].ref is not None:
        rows = await _everywhere(path, "seq = ?", rows[0].ref)
    if not rows:
        raise NotFound(f"the audit log has no row {seq}", hint="sandbox-console audit ls")
    return _entry(rows[0], await _everywhere(path, "ref = ?", rows[0].seq))


async def newest(path: Path) -> int:
    """The seq of the newest row of any kind, 0 if there is none. It shows in 1 ms whether anything is new."""
    layout = Layout(path)
    stored = await ask(layout.segment(layout.newest()), lambda db: rows_.head(db)[0]) or 0
    waiting = Reserve(layout.reserve).last() if Reserve(layout.reserve).holding else None
    return max(stored, waiting[0]) if waiting else stored


async def _everywhere(path: Path, where: str, *values: Any) -> list[AuditRow]:
    layout = Layout(path)
    found = [await ask(layout.segment(index), _rows, where, *values) or [] for index in layout.indices()]
    found.append(await _ask_reserve(path, lambda db: _rows(db, where, *values)))
    found.append(await _ask_waiting(layout, lambda db: _rows(db, where, *values)))
    return [row for rows in found for row in rows]


async def _ask_reserve(path: Path, function: Callable[[sqlite3.Connection], list[T]]) -> list[T]:
    """What a function finds in the rows that wait in the reserve, as if they were the next segment.

    On a full disk, or while another program locks the database, they are the newest.
    """
    layout = Layout(path)
    if not Reserve(layout.reserve).holding:
        return []
    last = await ask(layout.segment(layout.newest()), lambda db: rows_.head(db)[0]) or 0
    return await asyncio.to_thread(_of_reserve, layout, last, function)


def _of_reserve(layout: Layout, last: int, function: Callable[[sqlite3.Connection], list[T]]) -> list[T]:
    waiting = [row[: len(schema.COLUMNS)] for row in Reserve(layout.reserve).rows() if row[0] > last]
    try:
        return _of_rows(waiting, function)
    except sqlite3.Error as error:
        problem = f"the rows in {layout.reserve} were edited: {error}"
        raise AuditUnavailable(problem, hint="sandbox-console audit verify") from error


def _of_rows(rows: Sequence[rows_.Row], function: Callable[[sqlite3.Connection], list[T]]) -> list[T]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE TABLE record ({', '.join(schema.COLUMNS)})")
        db.executemany(f"INSERT INTO record VALUES ({_marks(schema.COLUMNS)})", rows)  # noqa: S608
        return function(db)


async def _ask_waiting(layout: Layout, function: Callable[[sqlite3.Connection], list[T]]) -> list[T]:
    """What a function finds in the rows that wait beside the log, which are numbered -1, -2, ..."""
    if not waiting_rows.version(layout):
        return []
    newest = layout.segment(layout.newest())
    found = await ask(newest, lambda db: waiting_rows.columns(layout, db))
    found = waiting_rows.columns(layout, None) if found is None else found
    return await asyncio.to_thread(_of_rows, found, function)


def _waiting(db: sqlite3.Connection, query: AuditQuery, later: Ends) -> list[AuditEntry]:
    """The attempts that wait, newest first; none on an older page. ``later`` gets the ends of those in the log."""
    for end in _rows(db, "ref > 0"):
        later.setdefault(end.ref or 0, []).append(end)
    if query.before_seq is not None:
        return []
    [count] = db.execute("SELECT count(*) FROM record").fetchone()
    return _of_segment(db, query, None, count + 1, {})[::-1]


def _of_segment(db: sqlite3.Connection, query: AuditQuery, spans: Spans, limit: int, later: Ends) -> list[AuditEntry]:
    """The attempts of one segment. If they are too few, ``later`` collects the ends that belong to older segments."""
    attempts = _attempts(db, query, spans, limit, later) if _in_time(db, query) else []
    ends: Ends = {}
    for at in range(0, len(attempts), _AT_ONCE):
        some = [row.seq for row in attempts[at : at + _AT_ONCE]]
        for end in _rows(db, f"ref IN ({_marks(some)})", *some):
            ends.setdefault(end.ref or 0, []).append(end)
    entries = [_entry(row, ends.get(row.seq, []) + later.get(row.seq, [])) for row in attempts]
    if len(entries) < limit:
        _note_later(db, later)
    return entries


def _attempts(db: sqlite3.Connection, query: AuditQuery, spans: Spans, limit: int, later: Ends) -> list[AuditRow]:
    where, values = _where(query, later, rare=not query.outcome or _is_rare(db, query.outcome))
    rows: list[AuditRow] = []
    for within, ends in [("", ())] if spans is None else [(" AND seq BETWEEN ? AND ?", span) for span in spans]:
        sql = f"SELECT {_FIELDS} FROM record a WHERE kind = 'attempt'{within}{where} ORDER BY seq DESC LIMIT ?"  # noqa: S608
        rows += map(row, db.execute(sql, (*ends, *values, limit - len(rows))).fetchall())
        if len(rows) >= limit:
            break
    return rows


def _in_time(db: sqlite3.Connection, query: AuditQuery) -> bool:
    """Whether any row of the segment is in the requested span of time."""
    if query.since is None and query.until is None:
        return True
    sql = "SELECT (SELECT min(ts_ns) FROM record), (SELECT max(ts_ns) FROM record)"  # each alone is one index lookup
    first, last = db.execute(sql).fetchone()
    return first is not None and not (
        (query.since is not None and last < int(query.since * 1e9))
        or (query.until is not None and first >= int(query.until * 1e9))
    )


def _note_later(db: sqlite3.Connection, later: Ends) -> None:
    """Remember ends in this segment whose attempts are in an older one."""
    [first] = db.execute("SELECT coalesce(min(seq), 0) FROM record").fetchone()
    for row in _rows(db, "ref < ?", first) if first > 1 else ():
        later.setdefault(row.ref or 0, []).append(row)


def _storable(query: AuditQuery) -> bool:
    """Whether any row can match the text at all: SQLite cannot store half of a surrogate pair."""
    try:
        f"{query.target}{query.action}{query.outcome}{query.backend}{query.actor}{query.text}".encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_long(text: str) -> None:
    if len(text) > _TEXT_MOST:
        raise UsageError(f"the text to look for has {len(text):,} characters", hint=f"{_TEXT_MOST:,} at most")


def _entry(attempt: AuditRow, rest: Sequence[AuditRow]) -> AuditEntry:
    rest = sorted(rest, key=lambda row: row.seq)  # from several segments
    notes = tuple(row for row in rest if row.kind is Kind.NOTE)
    end = next((row for row in rest if row.kind in (Kind.OUTCOME, Kind.UNKNOWN)), None)
    return AuditEntry(attempt, end, notes)


def _is_rare(db: sqlite3.Connection, outcome: str) -> bool:
    """Whether this outcome is so rare that listing it is cheaper than reading the newest attempts one by one."""
    wanted = _words(outcome)
    some = f"SELECT 1 FROM record WHERE outcome IN ({_marks(wanted)}) AND outcome <> '' LIMIT {_RARE}"  # noqa: S608
    [count] = db.execute(f"SELECT count(*) FROM ({some})", wanted).fetchone()  # noqa: S608
    return bool(count < _RARE)


def _where(query: AuditQuery, later: Ends, *, rare: bool) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if query.target:
        # The ref of a created sandbox is known only at its outcome.
        also = _late(later, lambda end: end.target == query.target)
        parts.append(f"(a.target = ? OR a.seq IN (SELECT ref FROM record WHERE target = ? AND kind = 'outcome'){also})")  # noqa: S608
        values += [query.target, query.target]
    for column in ("action", "backend", "actor"):
        if value := getattr(query, column):
            parts.append(f"a.{column} = ?")
            values.append(value)
    if wanted := _words(query.outcome):
        also = _late(later, lambda end: end.outcome in wanted)
        fits = f"outcome IN ({_marks(wanted)})"
        listed = f"a.seq IN (SELECT ref FROM record WHERE {fits} AND outcome <> '')"  # noqa: S608
        looked = f"EXISTS (SELECT 1 FROM record e WHERE e.ref = a.seq AND e.{fits})"  # noqa: S608
        parts.append(f"({listed if rare else looked}{also})")
        values += wanted
    if query.text:
        parts.append(f"({' OR '.join(f'a.{column} LIKE ? ESCAPE ?' for column in segment_index.SEARCHED)})")
        values += [f"%{_escaped(query.text)}%", "\\"] * len(segment_index.SEARCHED)
    for column, sign, moment in (("ts_ns", ">=", query.since), ("ts_ns", "<", query.until)):
        if moment is not None:
            parts.append(f"a.{column} {sign} ?")
            values.append(int(moment * 1e9))
    if query.before_seq is not None:
        parts.append("a.seq < ?")
        values.append(query.before_seq)
    return "".join(f" AND {part}" for part in parts), values


def _words(outcome: str) -> list[str]:
    """The requested outcomes, without the empty one, which attempts and notes have."""
    return [word for word in outcome.split(",") if word]


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


def _late(later: Ends, fits: Any) -> str:
    """An additional condition for attempts whose end, in a newer segment, matches."""
    seqs = [str(seq) for seq, ends in later.items() if any(fits(end) for end in ends if end.kind is not Kind.NOTE)]
    return f" OR a.seq IN ({','.join(seqs)})" if seqs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _rows(db: sqlite3.Connection, where: str, *values: Any) -> list[AuditRow]:
    # The "+" keeps SQLite from walking the whole table for the order: there are few rows, and they are in an index.
    sql = f"SELECT {_FIELDS} FROM record WHERE {where} ORDER BY +seq"  # noqa: S608
    return [row(found) for found in db.execute(sql, values).fetchall()]


def row(found: sqlite3.Row | tuple[Any, ...]) -> AuditRow:
    """A row of the table, without ``prev``, as the model's Struct. Raises AuditUnavailable if it is not a valid row."""
    seq, at_ns, kind, ref, actor, session, request, action, backend, target, outcome, dur, body, digest = tuple(found)
    try:
        return AuditRow(seq, at_ns, Kind(kind), ref, actor, session, request, action, backend, target, outcome, dur,
                        rows_.body_data(body), digest.hex())  # fmt: skip
    except (ValueError, TypeError, AttributeError):
        raise AuditUnavailable(
            f"row {seq} of the audit log was edited: it is of no kind that there is ({kind!r}), or has a wrong type",
            hint="sandbox-console audit verify",
        ) from None
