"""The tables, and the triggers that keep the log append-only against mistakes (not against root)."""

from __future__ import annotations

import hashlib
import sqlite3
import uuid
from contextlib import closing
from functools import cache
from typing import Any

from msgspec import Struct

from sandbox_console.audit.chain import genesis
from sandbox_console.errors import AuditUnavailable

VERSION = 3
"""Stored as SQLite's user_version; a file with a higher one was written by a newer console.

A file of version 1 or 2 keeps its version until it is rotated, and its rows are chained in form 1. Sealing turns 1
into 2, so that a console that does not know segments refuses it. Since version 3, rows have a MAC.
"""

_SEALED = 2

COLUMNS = (
    "seq", "ts_ns", "kind", "ref", "actor", "session", "request_id", "action",
    "backend", "target", "outcome", "dur_us", "body", "prev", "hash",
)  # fmt: skip

# INSERT OR REPLACE bypasses DELETE triggers while recursive triggers are off. So inserts are guarded as well: only the
# next seq, chained to the head, is accepted.
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE record (
    seq INTEGER PRIMARY KEY,
    ts_ns INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('attempt', 'outcome', 'unknown', 'note', 'checkpoint', 'rotate')),
    ref INTEGER,
    actor TEXT NOT NULL,
    session TEXT NOT NULL,
    request_id TEXT NOT NULL,
    action TEXT NOT NULL,
    backend TEXT NOT NULL,
    target TEXT NOT NULL,
    outcome TEXT NOT NULL,
    dur_us INTEGER,
    body TEXT NOT NULL,
    prev BLOB NOT NULL,
    hash BLOB NOT NULL,
    mac BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX one_end ON record (ref) WHERE kind IN ('outcome', 'unknown');
CREATE INDEX by_ref ON record (ref) WHERE ref IS NOT NULL;
CREATE INDEX by_target ON record (target, seq);
CREATE INDEX by_action ON record (action, seq);
CREATE INDEX by_actor ON record (actor, seq);
CREATE INDEX by_backend ON record (backend, seq);
CREATE INDEX by_time ON record (ts_ns);
CREATE INDEX by_outcome ON record (outcome, seq) WHERE outcome <> '';
CREATE TABLE carried (
    seq INTEGER PRIMARY KEY, session TEXT NOT NULL, action TEXT NOT NULL, backend TEXT NOT NULL,
    target TEXT NOT NULL, request_id TEXT NOT NULL
) STRICT;
CREATE TRIGGER no_update BEFORE UPDATE ON record BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON record BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER only_next BEFORE INSERT ON record
WHEN NEW.seq IS NOT coalesce(
        (SELECT max(seq) + 1 FROM record),
        (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'first_seq'))
  OR lower(hex(NEW.prev)) IS NOT coalesce(
        (SELECT lower(hex(hash)) FROM record ORDER BY seq DESC LIMIT 1),
        (SELECT value FROM meta WHERE key = 'genesis'))
BEGIN SELECT RAISE(ABORT, 'the audit log takes only its next row'); END;
"""


_SEAL = """
CREATE TRIGGER sealed BEFORE INSERT ON record
BEGIN SELECT RAISE(ABORT, 'this segment of the audit log is sealed'); END
"""

_MACS = ",\n    mac BLOB NOT NULL"  # since version 3
_SINCE_2 = ("carried", "by_actor", "by_backend", "by_time", "by_outcome")
_META = {"console_uuid", "genesis", "first_seq", "index"}
_STATISTICS = ("CREATE TABLE sqlite_stat1(tbl,idx,stat)", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)")
"""The tables that `ANALYZE` makes, in case somebody runs it."""

# As in version 1.
_OLD_ONLY_NEXT = (
    "CREATE TRIGGER only_next BEFORE INSERT ON record WHEN NEW.seq IS NOT "
    "(SELECT coalesce(max(seq), 0) + 1 FROM record) OR lower(hex(NEW.prev)) IS NOT coalesce( "
    "(SELECT lower(hex(hash)) FROM record ORDER BY seq DESC LIMIT 1), (SELECT value FROM meta WHERE key = 'genesis')) "
    "BEGIN SELECT RAISE(ABORT, 'the audit log takes only its next row'); END"
)


class Head(Struct, frozen=True):
    """The beginning of a segment: the log's identity, the segment's place, and the row before its first one."""

    console: str
    index: int
    genesis: bytes
    first_seq: int
    carried: tuple[tuple[Any, ...], ...] = ()


def new_log() -> Head:
    """The head of a new log's first segment."""
    console = uuid.uuid4().hex
    return Head(console, 1, genesis(console), 1)


def prepare(connection: sqlite3.Connection) -> None:
    """Set a writing connection's pragmas. Raises AuditUnavailable for a newer file.

    WAL with synchronous FULL: NORMAL lost 809 records in 213 of 300 simulated power cuts, FULL none.
    The writer runs checkpoints under its lock, and SQLite never does: versions before 3.51.3 can corrupt a WAL when a
    checkpoint races with a reset.
    """
    refuse_newer(connection)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")


def create(connection: sqlite3.Connection, head: Head) -> None:
    """Make a segment's tables, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _statements():
        connection.execute(statement)
    meta = {"console_uuid": head.console, "genesis": head.genesis.hex(), "first_seq": str(head.first_seq)}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", (meta | {"index": str(head.index)}).items())
    connection.executemany("INSERT INTO carried VALUES (?, ?, ?, ?, ?, ?)", head.carried)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def head_of(connection: sqlite3.Connection) -> Head:
    """What a segment says about itself; a value that was removed or has another type is empty."""
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    try:
        start = bytes.fromhex(meta.get("genesis", ""))
    except ValueError:
        start = b""
    return Head(meta.get("console_uuid", ""), _number(meta.get("index")), start, _number(meta.get("first_seq")))


def seal(connection: sqlite3.Connection) -> None:
    """Close a segment to every writer, inside the caller's transaction."""
    connection.execute(_SEAL)
    connection.execute(f"PRAGMA user_version = {max(version(connection), _SEALED)}")


def sealed(connection: sqlite3.Connection) -> bool:
    """Whether the segment is closed to new rows."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sealed'").fetchone() is not None


def version(connection: sqlite3.Connection) -> int:
    """The version of a file's schema."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def form(connection: sqlite3.Connection) -> int:
    """How the segment is chained (`chain.FORMS`). A later form has MACs."""
    found = connection.execute("SELECT 1 FROM pragma_table_info('record') WHERE name = 'mac'").fetchone()
    return 1 if found is None else 2


def altered(connection: sqlite3.Connection, *, closed: bool) -> str:
    """The trigger, index or table that was changed or added; empty if none was.

    ``closed`` says that the segment must be sealed.
    """
    chained = form(connection)
    there, made = _objects(connection), _made(chained)
    old = chained == 1 and there.get("only_next") == ("trigger", _OLD_ONLY_NEXT)
    for name, (type_, sql) in made.items():
        lacking = name not in there and ((name == "sealed" and not closed) or (old and name in _SINCE_2))
        if not lacking and there.get(name) != (type_, sql) and not (old and name == "only_next"):
            return f"its {type_} {name} is not as made"
    for name, (type_, _) in there.items():
        if name not in made:
            return f"the {type_} {name} was put in"
    if not old and version(connection) != (VERSION if chained > 1 else _SEALED):
        return "its user_version is not as made"
    keys = {key for [key] in connection.execute("SELECT key FROM meta").fetchall()}
    more = sorted(map(str, keys - _META))  # a flipped bit can turn a key into any type
    return f"its table meta has {', '.join(more)}" if more else ""


@cache
def _made(form: int) -> dict[str, tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in (*_statements(), _SEAL):
            db.execute(statement.replace(_MACS, "") if form == 1 else statement)
        return _objects(db)


def _objects(connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Type and SQL of all objects, by name. A name that looks like SQLite's own does not prove that SQLite made it."""
    found = connection.execute("SELECT name, type, sql FROM sqlite_schema").fetchall()
    return {name: (type_, _plain(sql or "")) for name, type_, sql in found
            if not (type_ == "index" and sql is None) and not (type_ == "table" and sql in _STATISTICS)}  # fmt: skip


def statistics(connection: sqlite3.Connection) -> str:
    """SHA-256 of what `ANALYZE` left, in hex; empty if there is nothing."""
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    names = [name for name, sql in found if sql in _STATISTICS]
    content = [connection.execute(f"SELECT * FROM {name}").fetchall() for name in names]  # noqa: S608
    return hashlib.sha256(repr(content).encode()).hexdigest() if names else ""


def carried(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Attempts of older segments that had no end when this one was made; none in a file of version 1."""
    return connection.execute("SELECT * FROM carried ORDER BY seq").fetchall() if _carries(connection) else []


def signs(connection: sqlite3.Connection) -> bool:
    """Whether a console that writes anchors made or sealed this file, whatever its version; version 1 wrote none."""
    return version(connection) > 1 or _carries(connection)


def _carries(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'carried'").fetchone() is not None


def open_attempts(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Attempts without an end, those carried over first: (seq, session, action, backend, target, request_id)."""
    columns = "seq, session, action, backend, target, request_id"
    unended = "NOT EXISTS (SELECT 1 FROM record e WHERE e.ref = a.seq AND e.kind IN ('outcome', 'unknown'))"
    found: list[tuple[Any, ...]] = []
    if _carries(connection):
        found = connection.execute(f"SELECT {columns} FROM carried a WHERE {unended}").fetchall()  # noqa: S608
    sql = f"SELECT {columns} FROM record a WHERE kind = 'attempt' AND {unended}"  # noqa: S608
    return found + connection.execute(sql).fetchall()


def _number(text: str | None) -> int:
    try:
        return int(text or "1")
    except ValueError:
        return 0


def refuse_newer(connection: sqlite3.Connection) -> None:
    """Raise AuditUnavailable if the file was written by a console with a newer schema."""
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        raise AuditUnavailable(
            f"the audit log has schema {found}; this console knows {VERSION}", hint="use the newer sandbox-console"
        )


def _plain(statement: str) -> str:
    return " ".join(statement.split()).removesuffix(";")


def _statements() -> list[str]:
    statements: list[str] = []
    statement = ""
    for line in _SCHEMA.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return statements
