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
    audit_stats = AuditStats()
    for index in layout.indices():
        async with reading(layout.segment(index)) as db:
            if db is None:
                continue
            await unit(db, _count, db._conn, audit_stats)  # noqa: SLF001
            audit_stats.segments += 1
        for end in ("", "-wal"):
            part = layout.segment(index).with_name(layout.segment(index).name + end)
            audit_stats.bytes += part.stat().st_size if part.exists() else 0
    return audit_stats


def _count(db: sqlite3.Connection, stats: AuditStats) -> None:
    rows, first, last = db.execute("SELECT count(*), min(ts_ns), max(ts_ns) FROM record").fetchone()
    if not rows:
        return
    stats.rows += rows
    stats.first_at = first / 1e9 if stats.first_at is None else stats.first_at
    stats.last_at = last / 1e9
    for counter, column, which in (
        (stats.actions, "action", "kind = 'attempt'"),
        (stats.actors, "actor", "kind = 'attempt'"),
        (stats.backends, "backend", "kind = 'attempt'"),
        (stats.outcomes, "outcome", "kind IN ('outcome', 'unknown')"),
    ):
        sql = f"SELECT {column}, count(*) FROM record WHERE {which} GROUP BY 1"  # noqa: S608
        counter.update(Counter(dict(db.execute(sql).fetchall())))
