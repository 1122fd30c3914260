"""Verifies one segment of the log: its rows, its tables, its manifest, and how it follows the one before."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from sandbox_console.audit import chain, page_digests, schema, segments
from sandbox_console.audit.anchors import Check
from sandbox_console.audit.chain import Walk
from sandbox_console.audit.db_thread import unit
from sandbox_console.audit.end_proof import (
    CHANGED,
    FOREIGN,
    MISSED,
    PLANTED,
    REFUSED,
    REWRITTEN,
    UNANCHORED,
    UNDIGESTED,
)
from sandbox_console.audit.keys import Keys, PublicKey
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.page_digests import Digests
from sandbox_console.audit.reader import reading
from sandbox_console.audit.reserve import Reserve
from sandbox_console.errors import AuditUnavailable

_COLUMNS = ", ".join(schema.COLUMNS)


class Findings(Struct):
    """The findings of the walk so far."""

    rows: int = 0
    last: int = 0
    waiting: int = 0  # the last row in the reserve
    head: bytes = b""
    first_bad: int | None = None
    problem: str = ""
    attempts: int = 0
    ends: int = 0
    unknown: int = 0
    segments: int = 0
    warnings: list[str] = field(default_factory=list)
    retired: set[int] = field(default_factory=set)
    console: str = ""
    signs: bool = False  # written by a console that writes anchors
    form: int = 1  # of the newest segment that was walked
    forged: int | None = None  # the first row that the key does not authenticate
    altered: list[str] = field(default_factory=list)  # what is wrong apart from the rows
    compared: int = 0  # segments of which every byte was compared

    def fail(self, problem: str, bad: int | None = None) -> None:
        """Keep the first problem."""
        if not self.problem:
            self.problem, self.first_bad = problem, bad


class Log(Struct, frozen=True):
    """What is verified: the log's place, and the key or public key with which its signatures are checked."""

    layout: Layout
    by: Check
    signed: Mapping[int, str]  # hashes that are proved outside of the database, by seq
    digested: int = 0  # the row after which the digests of the pages were written, according to the head

    @property
    def mac(self) -> Callable[[bytes], bytes] | None:
        """The function that authenticates a row; None without the key."""
        return self.by.of_row if isinstance(self.by, Keys) and self.layout.key.exists() else None

    def digests(self) -> tuple[Digests | None, str]:
        """The digests of the newest segment's pages, or what is wrong with them."""
        digests, problem = page_digests.read(self.layout.pages, self.by)
        return digests, page_digests.lost(digests, problem, self.digested, self.layout.pages.name)

    @property
    def known(self) -> int:
        """The last row that can explain what is missing. A public key proves no row after the last anchor."""
        return max(self.signed, default=0) if isinstance(self.by, PublicKey) else 2**63 - 1


async def walk_segment(log: Log, index: int, found: Findings, *, newest: bool) -> None:
    """Check one segment: its rows, its table as made, its manifest, and how it follows the one before."""
    layout = log.layout
    found.altered += [
        f"{one.name} was put beside the log: no console made it" for one in segments.foreign(layout.stored(index))
    ]
    try:
        async with reading(layout.stored(index)) as db:
            if db is None:
                return
            noted = [log.digests()] if newest else []
            facts, walked = await unit(db, lambda: _walk(db._conn, log, index, found, noted))  # noqa: SLF001
    except AuditUnavailable as error:
        if newest:
            raise
        if not _left(log, index, found):
            found.fail(f"segment {index}: {error.message}")
        return
    _add(facts, walked, found)
    if not _left(log, index, found, newest=newest):  # else the next segment's beginning reports it
        _judge(log, index, facts, walked, found, newest=newest)


def _add(facts: Mapping[str, Any], walked: Walk, found: Findings) -> None:
    """Count what was walked."""
    found.segments += 1
    found.rows += facts["rows"]
    found.attempts += facts["attempts"]
    found.ends += facts["ends"]
    found.unknown += facts["unknown"]
    found.last, found.head = walked.last, walked.head
    found.forged = found.forged or walked.forged
    if walked.went_back is not None:
        found.warnings.append(
            f"row {walked.went_back} is older than the one before it: the clock went back, or it was recorded beside "
            "the log while another console had its lock; the order is that of the ids"
        )


def _judge(log: Log, index: int, facts: Mapping[str, Any], walked: Walk, found: Findings, *, newest: bool) -> None:
    """Note what is wrong with a segment that was walked."""
    if walked.problem:
        found.fail(walked.problem, walked.bad)
    if facts["damage"]:
        found.fail(f"segment {index} is damaged: {facts['damage']}")
    _note_altered(log, index, facts, found)
    if newest:
        _compare(facts["pages"], found)
    else:  # as it was before the walk: another console may seal a segment while it is walked
        found.altered += _against_manifest(log, index, facts, walked, found)


def _left(log: Log, index: int, found: Findings, *, newest: bool = False) -> bool:
    """Whether a console left the segment as damaged. Without a valid signature, its note is itself a problem."""
    left, problem = segments.read_signed(log.layout.quarantine(index), log.by)
    if problem:
        found.fail(problem)
    if left is not None and newest:
        found.fail(f"segment {index} was damaged and left, and none follows it")
    return left is not None


def _note_altered(log: Log, index: int, facts: Mapping[str, Any], found: Findings) -> None:
    opened = f"segment {index} was opened to be changed: "
    if facts["altered"]:
        found.altered.append(opened + facts["altered"])
    # Every console that writes a later form also signs.
    before, _ = segments.read_signed(log.layout.manifest(index - 1), log.by, unsigned=found.form == 1)
    if facts["carried"] != (before or {}).get("carried", facts["carried"] if before else segments.fingerprint([])):
        found.altered.append(opened + "its table carried is not as made")


def _against_manifest(log: Log, index: int, facts: Mapping[str, Any], walked: Walk, found: Findings) -> list[str]:
    made, problem = segments.read_signed(log.layout.manifest(index), log.by, unsigned=found.form == 1)
    if made is None:
        return [problem or f"the manifest of segment {index} is missing"]
    if (made["rows"], made["last_seq"], made["last_hash"]) != (facts["rows"], walked.last, walked.head.hex()):
        return [f"segment {index} does not match its manifest"]
    _compare(page_digests.against_manifest(log.layout.stored(index).name, made.get("sha256"), facts["sha256"]), found)
    return []


def _compare(result: tuple[str, str], found: Findings) -> None:
    """Note what comparing a segment's bytes found: what was changed, or else why that cannot be known."""
    changed, unknown = result
    found.altered += [changed] if changed else []
    found.warnings += [unknown] if unknown else []
    found.compared += not changed and not unknown


def _walk(
    db: sqlite3.Connection, log: Log, index: int, found: Findings, noted: list[tuple[Digests | None, str]]
) -> tuple[dict[str, Any], Walk]:
    """``noted`` has the digests that were read before, if the segment is the newest."""
    db.execute("BEGIN")
    try:
        head = schema.head_of(db)
        if problem := _link(log, index, head, found) or _older(db, log, index, found):
            found.fail(problem, head.first_seq)
        facts = _facts(db, log, index, closed=not noted)
        found.signs = found.signs or schema.signs(db)
        columns = f"{_COLUMNS}, mac" if found.form > 1 else _COLUMNS
        rows = db.execute(f"SELECT {columns} FROM record ORDER BY seq")  # noqa: S608
        try:
            walked = chain.walk(head.genesis, head.first_seq - 1, rows, log.signed, found.form, log.mac)
            facts |= _counts(db)
            found.retired |= _retired(db, log.known)
            found.altered += _told_by_consoles(db)
            if noted:  # a console that wrote in between has written them again
                noted.append(log.digests())
                facts["pages"] = page_digests.against_digests(db, log.layout.stored(index), noted)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            walked = Walk(head.first_seq - 1, head.genesis, None, f"segment {index} cannot be read: {error}")
        return facts, walked
    finally:
        db.execute("ROLLBACK")


def _facts(db: sqlite3.Connection, log: Log, index: int, *, closed: bool) -> dict[str, Any]:
    """What is known about a segment before its rows are read. The newest one is not ``closed``."""
    return {
        "damage": segments.damage(db, indexes=True) or segments.garbage(db, log.layout.stored(index)),
        "rows": 0,
        "attempts": 0,
        "ends": 0,
        "unknown": 0,
        "pages": ("", ""),
        "altered": schema.altered(db, closed=closed),
        "sha256": segments.digest_of(db) if closed else "",
        "carried": segments.fingerprint(schema.carried(db)),
    }


def _older(db: sqlite3.Connection, log: Log, index: int, found: Findings) -> str:
    """Note the segment's form. One older than that of an earlier segment is a problem, because no console writes it."""
    before, found.form = found.form, schema.form(db)
    if found.form < max(before, log.by.form if isinstance(log.by, Keys) else 1):
        return f"segment {index} is of an older form than this log has"
    return ""


def _counts(db: sqlite3.Connection) -> dict[str, int]:
    kinds = dict(db.execute("SELECT kind, count(*) FROM record GROUP BY kind").fetchall())
    unknown = kinds.get("unknown", 0)
    return {"rows": sum(kinds.values()), "attempts": kinds.get("attempt", 0),
            "ends": kinds.get("outcome", 0) + unknown, "unknown": unknown}  # fmt: skip


def _retired(db: sqlite3.Connection, known: int) -> set[int]:
    """The segments that retention removed, according to rows up to ``known``."""
    sql = "SELECT body FROM record WHERE action = 'retention' AND kind = 'checkpoint' AND seq <= ?"
    rows = db.execute(sql, (known,)).fetchall()
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        return {removed["segment"] for [body] in rows for removed in json.loads(body)["removed"]}
    return set()


def _told_by_consoles(db: sqlite3.Connection) -> list[str]:
    """The problems that consoles saw and recorded."""
    words = {CHANGED: "rows that a console had written before it were missing or different",
             UNANCHORED: "the anchors or their key were missing, and new ones were started",
             FOREIGN: "bytes that are no part of an anchor followed the last anchor",
             REWRITTEN: "the segment's file had been changed where it has no row",
             UNDIGESTED: "the digests of its pages were gone, changed or set back, and new ones were made",
             PLANTED: "a file was beside the database that no console made, and was set aside unread",
             REFUSED: "lines in a session's file of urgent rows were not a console's, and were refused",
             MISSED: "urgent rows that a console had written beside the log were missing"}  # fmt: skip
    marks = ",".join("?" * len(words))
    sql = f"SELECT seq, action FROM record WHERE action IN ({marks}) AND kind = 'checkpoint' ORDER BY seq"  # noqa: S608
    return [f"row {seq} says: {words[action]}" for seq, action in db.execute(sql, tuple(words)).fetchall()]


def _link(log: Log, index: int, head: schema.Head, found: Findings) -> str:
    """What is wrong with how a segment follows the one before it; empty if nothing is."""
    if head.index != index:
        return f"the file of segment {index} is that of segment {head.index}"
    before, found.console = found.console, head.console
    if index == 1:
        return "" if head.genesis == chain.genesis(head.console) else "the log's beginning was changed"
    left, problem = segments.read_signed(log.layout.quarantine(index - 1), log.by)
    if problem:
        return problem
    if left is not None:
        return _after_damage(log.layout, index, head, left)
    if log.layout.stored(index - 1).exists():
        if before and before != head.console and not found.problem:
            return f"segment {index} says that it is of another log than segment {index - 1}"
        follows = (found.last + 1, found.head) == (head.first_seq, head.genesis)
        return "" if follows or found.problem else f"segment {index} does not follow segment {index - 1}"
    manifest, problem = segments.read_signed(log.layout.manifest(index - 1), log.by, unsigned=True)
    if found.segments:
        return f"segment {index - 1} is missing"
    if manifest is None:
        return problem or f"segment {index - 1} is missing, and there is no manifest for it"
    if (manifest["last_seq"] + 1, manifest["last_hash"]) != (head.first_seq, head.genesis.hex()):
        return f"segment {index} does not follow segment {index - 1} as its manifest says"
    found.warnings.append(f"rows up to {manifest['last_seq']} were removed by retention; their manifests remain")
    return ""


def _after_damage(layout: Layout, index: int, head: schema.Head, left: Mapping[str, Any]) -> str:
    if (left["last_seq"] + 1, left["link"]) != (head.first_seq, head.genesis.hex()):
        return f"segment {index} does not follow the damaged segment {index - 1} as was recorded"
    if layout.stored(index - 1).exists():
        return f"segment {index - 1} was damaged and left: {left['problem']}"
    return f"segment {index - 1} was damaged and left ({left['problem']}), and is not here any more"


def walk_reserve(log: Log, found: Findings) -> None:
    """Check the rows waiting in the reserve. They follow the last row of the newest segment."""
    waiting = [row for row in Reserve(log.layout.reserve).rows() if row[0] > found.last]
    if waiting and not found.problem:
        walked = chain.walk(found.head, found.last, waiting, log.signed, found.form, log.mac)
        found.warnings.append(f"{len(waiting)} rows wait in the reserve until the database takes them")
        if walked.problem:
            found.fail(f"in the reserve: {walked.problem}", walked.bad)
        found.forged = found.forged or walked.forged
        found.rows += len(waiting)
        found.waiting, found.head = walked.last, walked.head
