"""Rows before and after they are added to the chain."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from sandbox_console.audit import chain, schema
from sandbox_console.audit.reserve import EMERGENCY
from sandbox_console.model.audit import Kind

Row = tuple[Any, ...]
Position = tuple[int, bytes]
"""A row's seq and hash."""


class Draft(Struct, frozen=True):
    """A row without a place in the chain yet."""

    kind: Kind
    actor: str
    session: str
    action: str
    backend: str = ""
    target: str = ""
    ref: int | None = None
    request_id: str = ""
    outcome: str = ""
    dur_us: int | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    at_ns: int = 0
    """When it was recorded beside the log; 0 for a row that is recorded now."""

    @property
    def urgent(self) -> bool:
        """Whether it may use the reserve, because it is an end or takes something away from a sandbox."""
        return self.kind is not Kind.ATTEMPT or self.action in EMERGENCY


class Chain(Protocol):
    """What the parts of a writer need of it. Each method runs under the log's lock."""

    def commit(self, made: Sequence[Row]) -> None:
        """Insert rows in one transaction. Raises sqlite3.Error."""

    def add(self, draft: Draft) -> None:
        """Append one row, into the reserve if need be."""

    def tell(self, action: str, body: dict[str, Any]) -> None:
        """Commit a checkpoint."""

    def mac(self) -> Callable[[bytes], bytes] | None:
        """What makes the rows' MACs; None in a segment whose rows have none."""


def chained(drafts: Sequence[Draft], head: Position, mac: Callable[[bytes], bytes] | None) -> list[Row]:
    """The drafts as rows after ``head``. The second of two drafts belongs to the first, whose seq is now known.

    ``mac`` makes a row's MAC. It is None in a segment of form 1, whose rows have none.
    """
    rows: list[Row] = []
    seq, prev = head
    for draft in drafts:
        seq += 1
        ref = seq - 1 if draft.ref is None and draft is not drafts[0] else draft.ref
        columns = (
            seq, draft.at_ns or time.time_ns(), str(draft.kind), ref, draft.actor, draft.session, draft.request_id,
            draft.action, draft.backend, draft.target, str(draft.outcome), draft.dur_us, canonical(draft.body),
        )  # fmt: skip
        made = chain.made(2 if mac else 1, prev, columns)
        rows.append((*columns, prev, made, *([mac(made)] if mac else [])))
        prev = made
    return rows


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert rows inside the caller's transaction. Raises sqlite3.Error, also if a trigger skipped a row."""
    marks = ",".join("?" * len(rows[0]))
    done = connection.executemany(f"INSERT INTO record VALUES ({marks})", rows)  # noqa: S608
    if done.rowcount != len(rows):
        raise sqlite3.IntegrityError("a trigger that is not one of its own keeps rows out; see `audit verify`")


def position(row: Row) -> Position:
    """The position of a row: its number and its hash."""
    return row[0], row[chain.HASH]


def head(connection: sqlite3.Connection) -> Position:
    """The position of a segment's last row, which the next one follows."""
    found: Position | None = connection.execute("SELECT seq, hash FROM record ORDER BY seq DESC LIMIT 1").fetchone()
    if found is not None:
        return found
    begin = schema.head_of(connection)
    return begin.first_seq - 1, begin.genesis


def is_in(connection: sqlite3.Connection, draft: Draft) -> bool:
    """Whether a row that was recorded beside the log has been moved to this segment."""
    sql = "SELECT 1 FROM record WHERE ts_ns = ? AND session = ? AND request_id = ? AND kind = ?"
    told = draft.at_ns, draft.session, draft.request_id, str(draft.kind)
    return connection.execute(sql, told).fetchone() is not None


def canonical(body: Mapping[str, Any]) -> str:
    """The body as it is hashed and stored: ASCII JSON, keys sorted, no spaces."""
    return json.dumps(body, ensure_ascii=True, separators=(",", ":"), sort_keys=True)


def body_data(body: str) -> dict[str, Any]:
    """The body as data. One that was edited into something else is shown as it is; verify() finds it."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"damaged": body}
