"""Ships the log to PostgreSQL. Each row arrives exactly once, keyed by (console_uuid, seq), even if one side dies.

The local log remains the record, and the table is a copy for many consoles. The cursor moves on after the server has
committed. Rows whose commit was not noticed because of a crash are sent again and recognised as known.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from sandbox_console.audit import export, schema
from sandbox_console.audit.db_thread import unit
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reader import reading
from sandbox_console.errors import AuditUnavailable, ConsoleError, Unsupported
from sandbox_console.model.audit import AuditSelection

if TYPE_CHECKING:
    import asyncpg

TABLE = """
CREATE TABLE IF NOT EXISTS sandbox_console_audit (
    console_uuid text NOT NULL, seq bigint NOT NULL, ts_ns bigint NOT NULL, kind text NOT NULL, ref bigint,
    actor text NOT NULL, session text NOT NULL, request_id text NOT NULL, action text NOT NULL, backend text NOT NULL,
    target text NOT NULL, outcome text NOT NULL, dur_us bigint, body text NOT NULL, prev bytea NOT NULL,
    hash bytea NOT NULL, PRIMARY KEY (console_uuid, seq)
)
"""
"""The table that `init` makes. The database user that ships rows only needs INSERT on it."""

_TYPES = ("bigint", "bigint", "text", "bigint", *("text",) * 7, "bigint", "text", "bytea", "bytea")
_INSERT = (
    f"INSERT INTO sandbox_console_audit (console_uuid, {', '.join(schema.COLUMNS)}) SELECT $1, rows.* FROM unnest("  # noqa: S608
    + ", ".join(f"${number}::{type_}[]" for number, type_ in enumerate(_TYPES, 2))
    + ") AS rows ON CONFLICT DO NOTHING"
)


class ShipFailed(ConsoleError):
    """The server did not accept the rows. They stay in the log and are sent again."""

    code = "ship"


async def init(dsn: str) -> None:
    """Create the table. Raises ShipFailed; Unsupported if asyncpg is not installed."""
    async with _Server(dsn) as server:
        await server.execute(TABLE)


async def ship(path: Path, dsn: str) -> int:
    """Send the rows that have not been sent yet. Returns how many. Raises ShipFailed, AuditUnavailable, Unsupported."""
    return await send_new(path, Layout(path).cursor, _Server(dsn))


class Receiver(Protocol):
    """An async context manager that takes rows. ``send`` raises ShipFailed if it did not take all of them."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...
    async def send(self, console: str, rows: Sequence[Sequence[Any]]) -> None:
        """Take rows of the log with this id."""


async def send_new(path: Path, file: Path, receiver: Receiver) -> int:
    """Send the rows after the cursor in ``file``, which moves on once rows were taken. Returns how many."""
    console = await _console(Layout(path))
    if not console:
        return 0
    count = 0
    with _alone(file):
        after = cursor(file, console)
        async with receiver, aclosing(export.blocks(path, AuditSelection(after_seq=after))) as blocks:
            async for rows in blocks:
                await receiver.send(console, rows)
                _move(file, console, rows[-1][0])
                count += len(rows)
    return count


async def sent(path: Path, file: Path) -> int:
    """The last row of this log that was sent according to a cursor's file. Raises AuditUnavailable."""
    return cursor(file, await _console(Layout(path)))


class _Server:
    """A connection to the server. Every problem is raised as a ShipFailed that never shows the password."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: asyncpg.Connection | None = None

    async def __aenter__(self) -> Self:
        try:
            import asyncpg
        except ImportError:
            raise Unsupported("shipping needs asyncpg", hint="install sandbox-console-tui[postgres]") from None
        self._errors = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, ValueError)
        try:
            self._connection = await asyncpg.connect(self._dsn, timeout=20, command_timeout=60)
        except self._errors as error:
            raise self._failed("cannot be reached", error) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            with suppress(*self._errors):
                await self._connection.close(timeout=5)

    async def send(self, console: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows of the log with this id. Rows that are there already stay as they are."""
        await self.execute(_INSERT, console, *_columns(rows))

    async def execute(self, sql: str, *values: Any) -> None:
        assert self._connection is not None  # noqa: S101 - inside the block only
        try:
            await self._connection.execute(sql, *values)
        except self._errors as error:
            raise self._failed("did not take the rows", error) from None

    def _failed(self, failure: str, error: Exception) -> ShipFailed:
        reason = str(error).replace(self._dsn, "***") or type(error).__name__
        return ShipFailed(f"the audit server {failure}: {reason}", hint="they stay in the local log and are sent again")


def _columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows as columns. PostgreSQL's text cannot contain NUL, which only a target can have."""
    return [[value.replace("\0", "\\0") if isinstance(value, str) else value for value in column]
            for column in zip(*rows, strict=True)]  # fmt: skip


async def _console(layout: Layout) -> str:
    async with reading(layout.segment(layout.newest())) as db:
        return "" if db is None else (await unit(db, schema.head_of, db._conn)).console  # noqa: SLF001


def cursor(path: Path, console: str) -> int:
    """The last seq that was sent. Without a valid cursor it is 0; rows that are sent again are not stored twice."""
    log, seq = shipped_position(path)
    return seq if log == console else 0


def shipped_position(path: Path) -> tuple[str, int]:
    """The log that was shipped, and the last seq that was sent."""
    try:
        cursor = json.loads(path.read_text())
        return str(cursor["console"]), int(cursor["seq"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", 0


def _move(path: Path, console: str, seq: int) -> None:
    fresh = path.with_suffix(".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump({"console": console, "seq": seq}, file)
    fresh.rename(path)


@contextmanager
def _alone(cursor: Path) -> Iterator[None]:
    """Let one process ship at a time. Raises AuditUnavailable if another does."""
    fd = os.open(cursor.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AuditUnavailable("another process ships this log", hint="wait for it, or end it") from None
    try:
        yield
    finally:
        os.close(fd)
