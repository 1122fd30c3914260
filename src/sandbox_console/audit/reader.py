"""Reads snapshots of the segments. It never locks them, and works even if the log cannot be written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import aiosqlite

from sandbox_console.audit import schema
from sandbox_console.audit.db_thread import connect, unit
from sandbox_console.audit.open_segment import unavailable
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.cancellation import run_to_completion

MOST_BYTES = 64 << 20
"""The most bytes read of one value of a row: 500 times what the kernel accepts as one argument of a command."""

_READ = ("meta", "record", "carried")
P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[aiosqlite.Connection | None]:
    """A read-only connection to one segment; None if it does not exist or is empty. Raises AuditUnavailable.

    The file may come from anybody, such as a copy that another machine verifies, so none of its own SQL is run.
    """
    try:
        if not path.exists() or path.stat().st_size == 0:
            yield None
            return
        db = await _connect(path)
        hurry = True
        try:
            await unit(db, lambda: _taken_for_data(db._conn, path))  # noqa: SLF001
            yield db
            hurry = False
        finally:
            await run_to_completion(_close(db, hurry=hurry))
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # a damaged file may have damaged texts
        raise unavailable(error, path) from error


def _taken_for_data(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose own SQL would run on a read: an endless view in place of a table, computed columns."""
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    db.execute("PRAGMA trusted_schema = OFF")
    for name in _READ:
        made = db.execute("SELECT type, sql FROM sqlite_schema WHERE name = ?", (name,)).fetchall()
        kinds = {(kind, (sql or "").split()[:2] == ["CREATE", "TABLE"]) for kind, sql in made}
        computed = [one for [one] in db.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden", (name,))]
        if kinds - {("table", True)} or computed:
            raise AuditUnavailable(
                f"the audit log {path} is not read: its {name} is no plain table, and no console made it so",
                hint="do not trust this copy; ask for another one",
            )
    schema.refuse_newer(db)


async def ask(
    path: Path, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **named: P.kwargs
) -> T | None:
    """Call a function with a segment's connection, on its thread; None if there is no segment.

    If cancelled, it ends the running statement. Raises AuditUnavailable.
    """
    async with reading(path) as db:
        return None if db is None else await unit(db, lambda: function(db._conn, *args, **named))  # noqa: SLF001


async def _close(db: aiosqlite.Connection, *, hurry: bool) -> None:
    """Close the connection. If in a hurry, end a running statement without waiting for its answer."""
    closing = asyncio.ensure_future(db.close())
    while hurry and not closing.done():
        with suppress(sqlite3.Error, ValueError):  # already closed
            db._conn.interrupt()  # noqa: SLF001 - again and again: between two statements it does nothing
        await asyncio.wait([closing], timeout=0.02)
    await closing


async def _connect(path: Path) -> aiosqlite.Connection:
    # If the folder is not writable, SQLite cannot make its -shm file, but an immutable read still works.
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        db = await connect(f"file:{quote(str(path))}?{mode}", uri=True)
        try:
            await db.execute_fetchall("SELECT 1 FROM sqlite_schema LIMIT 1")
        except sqlite3.OperationalError:
            await db.close()
            continue
        except BaseException:  # an open connection keeps its thread alive, and thereby the process
            await db.close()
            raise
        return db
    raise AuditUnavailable(f"the audit log {path} cannot be read", hint=f"check the permissions of {path.parent}")
