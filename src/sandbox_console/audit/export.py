"""Exports the log for other programs, oldest row first, as verifiable JSON lines, OCSF events or CSV."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

import msgspec

from sandbox_console.audit import csv_rows, ocsf, rows, schema
from sandbox_console.audit.csv_rows import Memo
from sandbox_console.audit.db_thread import unit
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reader import reading
from sandbox_console.errors import UsageError
from sandbox_console.model.audit import AuditSelection

_AT_ONCE = 2000
_COLUMNS = ", ".join(schema.COLUMNS)
_hex = bytes.hex
_LINE = "{" + ",".join(f'"{name}":%s' for name in schema.COLUMNS[:-2]) + ',"prev":"%s","hash":"%s"}\n'


class _Any(msgspec.Struct):
    """Any JSON object. It is validated, but no field is read."""


_object = msgspec.json.Decoder(_Any).decode
Row = Sequence[Any]
Writer = Callable[[Sequence[Row]], bytes]


def formats() -> tuple[str, ...]:
    """The names of the formats."""
    return ("jsonl", "ocsf", "csv")


async def export(path: Path, form: str, select: AuditSelection) -> AsyncGenerator[bytes, None]:
    """The log in a format, in blocks. Raises UsageError for an unknown format, AuditUnavailable."""
    writers: dict[str, Writer] = {"jsonl": _jsonl, "ocsf": ocsf.lines, "csv": csv_rows.lines}
    if form not in writers:
        raise UsageError(f"no export format is called {form!r}", hint=f"there is: {', '.join(formats())}")
    if form == "csv":
        yield csv_rows.header()
    async with aclosing(blocks(path, select)) as found:  # if left early, it must be closed before the event loop
        async for block in found:
            yield writers[form](block)


async def blocks(path: Path, select: AuditSelection) -> AsyncGenerator[Sequence[Row], None]:
    """Rows as in the table, oldest first, about a thousand at a time, over all segments."""
    layout = Layout(path)
    last = select.after_seq
    for index in layout.indices():
        async with reading(layout.segment(index)) as db:
            while db is not None and (block := await unit(db, _some, db._conn, last, select)):  # noqa: SLF001
                last = block[-1][0]
                yield block


def _some(db: sqlite3.Connection, after: int, select: AuditSelection) -> list[Row]:
    where, values = ["seq > ?"], [after]
    for sign, moment in ((">=", select.since), ("<", select.until)):
        if moment is not None:
            where.append(f"ts_ns {sign} ?")
            values.append(int(moment * 1e9))
    sql = f"SELECT {_COLUMNS} FROM record WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?"  # noqa: S608
    return db.execute(sql, (*values, _AT_ONCE)).fetchall()


def _jsonl(block: Sequence[Row]) -> bytes:
    try:
        made = _lines(block)
    except (TypeError, ValueError, AttributeError):  # a column has a type that only an edit can give it
        made = "".join(map(_odd_line, block))
    return made.encode("utf-8", "replace")


def _lines(block: Sequence[Row]) -> str:
    text = Memo(encode_basestring)  # json.dumps makes an encoder for each call, which takes four times as long as a row
    made: list[str] = []
    for seq, ts, kind, ref, actor, session, request, action, backend, target, outcome, dur, body, prev, digest in block:
        belongs, took = "null" if ref is None else f"{ref:d}", "null" if dur is None else f"{dur:d}"
        made.append(
            _LINE % (f"{seq:d}", f"{ts:d}", text[kind], belongs, text[actor], text[session], encode_basestring(request),
                     text[action], text[backend], text[target], text[outcome], took, _one_line(body), _hex(prev),
                     _hex(digest))
        )  # fmt: skip
    return "".join(made)


def _one_line(body: str) -> str:
    """The body as it was hashed, so that a reader of the lines can compute the chain; an edited body as it is shown."""
    try:
        _object(body)
    except (msgspec.MsgspecError, RecursionError):
        return json.dumps(rows.body_data(body))
    return body if body.isascii() and "\n" not in body and "\r" not in body else json.dumps(rows.body_data(body))


def _odd_line(row: Row) -> str:
    with suppress(TypeError, ValueError, AttributeError):
        return _lines([row])
    shown = [value.hex() if isinstance(value, bytes) else value for value in row]
    return json.dumps(dict(zip(schema.COLUMNS, shown, strict=True))) + "\n"
