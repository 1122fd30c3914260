"""The log for others: every row, oldest first, as JSON lines that can be verified, as OCSF events, or as CSV."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from sandbox_console.audit import ocsf, schema
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reading import reading
from sandbox_console.audit.thread import unit
from sandbox_console.errors import UsageError
from sandbox_console.model.audit import AuditSelection

_AT_ONCE = 2000
_COLUMNS = ", ".join(schema.COLUMNS)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""

_LINE = "{" + ",".join(f'"{name}":%s' for name in schema.COLUMNS[:-2]) + ',"prev":"%s","hash":"%s"}\n'

Row = Sequence[Any]
Writer = Callable[[Sequence[Row]], bytes]


def formats() -> tuple[str, ...]:
    """The formats that there are."""
    return ("jsonl", "ocsf", "csv")


async def export(path: Path, form: str, select: AuditSelection) -> AsyncIterator[bytes]:
    """Blocks of the log in a format. Raises UsageError for an unknown one, AuditUnavailable."""
    writers: dict[str, Writer] = {"jsonl": _jsonl, "ocsf": ocsf.lines, "csv": _csv}
    if form not in writers:
        raise UsageError(f"no export format is called {form!r}", hint=f"there is: {', '.join(formats())}")
    if form == "csv":
        yield _csv([schema.COLUMNS], raw=True)
    async for rows in blocks(path, select):
        yield writers[form](rows)


async def blocks(path: Path, select: AuditSelection) -> AsyncIterator[Sequence[Row]]:
    """Rows as the table has them, oldest first, some thousand at a time, over all segments."""
    layout = Layout(path)
    last = select.after_seq
    for index in layout.indices():
        async with reading(layout.segment(index)) as db:
            while db is not None and (rows := await unit(db, _some, db._conn, last, select)):  # noqa: SLF001
                last = rows[-1][0]
                yield rows


def _some(db: sqlite3.Connection, after: int, select: AuditSelection) -> list[Row]:
    where, values = ["seq > ?"], [after]
    for sign, moment in ((">=", select.since), ("<", select.until)):
        if moment is not None:
            where.append(f"ts_ns {sign} ?")
            values.append(int(moment * 1e9))
    sql = f"SELECT {_COLUMNS} FROM record WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?"  # noqa: S608
    return db.execute(sql, (*values, _AT_ONCE)).fetchall()


def _jsonl(rows: Sequence[Row]) -> bytes:
    # The body goes in as it was hashed: whoever reads the lines can compute the chain anew.
    return "".join([_LINE % (*map(_plain, row[:12]), row[12], row[13].hex(), row[14].hex()) for row in rows]).encode(
        "utf-8", "replace"
    )


def _plain(value: str | int | None) -> str | int:
    """A column's value as JSON. json.dumps makes an encoder for each call: four times the time of a whole row."""
    return "null" if value is None else encode_basestring(value) if isinstance(value, str) else value


def _csv(rows: Iterable[Row], *, raw: bool = False) -> bytes:
    held = io.StringIO(newline="")
    csv.writer(held).writerows(rows if raw else map(_cells, rows))
    return held.getvalue().encode("utf-8", "replace")


def _cells(row: Row) -> Row:
    """A row of cells that no spreadsheet takes for a formula."""
    return [
        ("'" + value if value.startswith(_FORMULA) else value)
        if type(value) is str
        else (value.hex() if type(value) is bytes else value)
        for value in row
    ]  # a function for each cell takes half as long again
