"""Exports rows of the log with a proof: the hashes that link each row to a signed anchor.

Only the hashes of the rows in between are included, and they reveal nothing of their content. Segments of form 1 have
no such hashes, so their rows have no proof.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections.abc import AsyncGenerator, Collection, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox_console.audit import chain, schema
from sandbox_console.audit.anchors import Anchor, Anchors, sealed_text
from sandbox_console.audit.db_thread import unit
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reader import ask, reading

_AT_ONCE = 500
_ROW = ", ".join(schema.COLUMNS)


class Run(Struct, frozen=True):
    """Rows ``first`` to ``last``, whose links are included; ``last`` is anchored."""

    first: int
    last: int


class Proof(Struct, frozen=True):
    """What to include: rows by seq, the runs that prove them, the anchors, and the rows that have no proof."""

    seqs: tuple[int, ...] = ()
    runs: tuple[Run, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    unproved: tuple[int, ...] = ()


async def proof(path: Path, targets: Collection[str], until: float) -> Proof:
    """All rows about sandboxes (refs as text) before a time, and their proof. Raises AuditUnavailable."""
    layout = Layout(path)
    attempts: set[int] = set()
    for index in layout.indices():
        attempts |= await ask(layout.segment(index), _attempts, targets, int(until * 1e9)) or set()
    seqs, old = set(attempts), set[int]()
    for index in layout.indices():
        found = await ask(layout.segment(index), _ends, attempts, int(until * 1e9))
        if found is not None:
            seqs |= found[0]
            old |= {seq for seq in seqs if seq <= found[1]}
    anchors = [anchor for anchor in Anchors(layout.anchors, layout.key).read()[0] if anchor.sig]
    return _runs(sorted(seqs), anchors, old)


def _runs(seqs: Sequence[int], anchors: Sequence[Anchor], old: Collection[int]) -> Proof:
    """The runs that link each row to the first signed anchor after it, so that a row always has the same proof."""
    places = [anchor.seq for anchor in anchors]
    runs: list[Run] = []
    used: list[Anchor] = []
    unproved: list[int] = []
    for seq in seqs:
        if runs and seq <= runs[-1].last:
            continue
        at = bisect_left(places, seq)
        if at == len(places) or seq in old:
            unproved.append(seq)
            continue
        runs.append(Run(seq, places[at]))
        used.append(anchors[at])
    return Proof(tuple(seqs), tuple(runs), tuple(used), tuple(unproved))


def _attempts(db: sqlite3.Connection, targets: Collection[str], until_ns: int) -> set[int]:
    sql = (
        "SELECT seq FROM record WHERE target = ?1 AND kind = 'attempt' AND ts_ns < ?2 "
        "UNION SELECT ref FROM record WHERE target = ?1 AND kind = 'outcome' AND ref IS NOT NULL AND ts_ns < ?2"
    )
    return {seq for target in targets for [seq] in db.execute(sql, (target, until_ns)).fetchall()}


def _ends(db: sqlite3.Connection, attempts: Collection[int], until_ns: int) -> tuple[set[int], int]:
    """The ends and notes of attempts in a segment, and its last row if it is of form 1, else 0."""
    sql = "SELECT seq FROM record WHERE ref = ? AND ts_ns < ?"
    found = {seq for attempt in attempts for [seq] in db.execute(sql, (attempt, until_ns)).fetchall()}
    last = 0
    if schema.form(db) == 1:
        [last] = db.execute("SELECT coalesce(max(seq), 0) FROM record").fetchone()
    return found, last


async def rows(path: Path, seqs: Sequence[int]) -> AsyncGenerator[Sequence[bytes], None]:
    """The rows as JSON lines, a few hundred at a time, oldest first. Raises AuditUnavailable."""
    async for block in _read(path, [Run(seq, seq) for seq in seqs]):
        yield [_line(row) for row in block]


async def links(path: Path, runs: Sequence[Run]) -> AsyncGenerator[Sequence[bytes], None]:
    """Lines of seq, previous link, row hash and link, for all rows of each run. Raises AuditUnavailable."""
    async for block in _read(path, runs):
        yield [
            b"%d\t%s\t%s\t%s\n" % (row[0], row[chain.PREV].hex().encode(),
                                   chain.row_hash(row[: chain.PREV]).hex().encode(), row[chain.HASH].hex().encode())
            for row in block
        ]  # fmt: skip


def anchor_line(anchor: Anchor) -> bytes:
    """An anchor as a JSON line, without the MAC, because that proves nothing to others."""
    fields = {name: getattr(anchor, name) for name in anchor.__struct_fields__}
    return sealed_text(fields, "mac") + b"\n"


async def _read(path: Path, runs: Sequence[Run]) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
    layout = Layout(path)
    for index in layout.indices():
        async with reading(layout.segment(index)) as db:
            if db is None:
                continue
            for run in _within(runs, await unit(db, _span, db._conn)):  # noqa: SLF001
                after = run.first - 1
                while block := await unit(db, _some, db._conn, after, run.last):  # noqa: SLF001
                    after = block[-1][0]
                    yield block


def _span(db: sqlite3.Connection) -> Run:
    first, last = db.execute("SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM record").fetchone()
    return Run(first, last)


def _within(runs: Sequence[Run], span: Run) -> list[Run]:
    begin = bisect_left(runs, span.first, key=lambda run: run.last)
    found: list[Run] = []
    for run in runs[begin:]:
        if run.first > span.last:
            break
        found.append(Run(max(run.first, span.first), min(run.last, span.last)))
    return found


def _some(db: sqlite3.Connection, after: int, last: int) -> list[Any]:
    sql = f"SELECT {_ROW} FROM record WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"  # noqa: S608
    return db.execute(sql, (after, last, _AT_ONCE)).fetchall()


def _line(row: Sequence[Any]) -> bytes:
    columns = {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in zip(schema.COLUMNS, row, strict=True)
    }
    return json.dumps(columns, ensure_ascii=True, separators=(",", ":")).replace("\x7f", "\\u007f").encode() + b"\n"
