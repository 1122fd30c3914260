"""Counts over the whole log."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

from sandbox_console.audit.db_thread import unit
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reader import reading
from sandbox_console.model.audit import AuditStats


async def stats(path: Path) -> AuditStats:
    """The number and age of rows, the size, and what was done by whom with what outcome."""
    layout = Layout(path)
    found = AuditStats()
    for index in layout.indices():
        async with reading(layout.segment(index)) as db:
            if db is None:
                continue
            await unit(db, _count, db._conn, found)  # noqa: SLF001
            found.segments += 1
        for end in ("", "-wal"):
            part = layout.segment(index).with_name(layout.segment(index).name + end)
            found.bytes += part.stat().st_size if part.exists() else 0
    return found


def _count(db: sqlite3.Connection, found: AuditStats) -> None:
    rows, first, last = db.execute("SELECT count(*), min(ts_ns), max(ts_ns) FROM record").fetchone()
    if not rows:
        return
    found.rows += rows
    found.first_at = first / 1e9 if found.first_at is None else found.first_at
    found.last_at = last / 1e9
    for counter, column, which in (
        (found.actions, "action", "kind = 'attempt'"),
        (found.actors, "actor", "kind = 'attempt'"),
        (found.backends, "backend", "kind = 'attempt'"),
        (found.outcomes, "outcome", "kind IN ('outcome', 'unknown')"),
    ):
        sql = f"SELECT {column}, count(*) FROM record WHERE {which} GROUP BY 1"  # noqa: S608
        counter.update(Counter(dict(db.execute(sql).fetchall())))
