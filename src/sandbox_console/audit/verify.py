"""Verifies the log: every row of every segment, the anchors outside it, and the manifests of removed segments."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from sandbox_console.audit import chain, schema, segments, ship
from sandbox_console.audit.anchors import Anchor, Anchors, Check
from sandbox_console.audit.chain import Walk
from sandbox_console.audit.db_thread import unit
from sandbox_console.audit.end_proof import ANCHOR_EVERY, CHANGED, FOREIGN, UNANCHORED
from sandbox_console.audit.head import Head, HeadFile
from sandbox_console.audit.keys import Keys, PublicKey
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reader import reading
from sandbox_console.audit.reserve import Reserve
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import Verification

LIMITS = (
    "whoever can read anchor.key can rewrite log and anchors together; only a copy in journald or elsewhere shows it",
    "an older copy of log and anchors together looks whole; only a copy in journald or elsewhere shows what is missing",
    "what was done without this console is in no row",
)
BY_PUBLIC_KEY = (
    "with the public key: whether rows after the last signed anchor are the console's, and whether some were cut",
)
_COLUMNS = ", ".join(schema.COLUMNS)


class _Found(Struct):
    """What the walk has found so far."""

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
    signs: bool = False  # written by a console that anchors
    form: int = 1  # of the newest segment that was walked
    forged: int | None = None  # the first row that the key did not authenticate
    altered: list[str] = field(default_factory=list)  # what is wrong beside the rows

    def fail(self, problem: str, bad: int | None = None) -> None:
        """Keep the first problem."""
        if not self.problem:
            self.problem, self.first_bad = problem, bad


class _Log(Struct, frozen=True):
    """What is verified: where the log is, and the key or public key with which its signatures are checked."""

    layout: Layout
    by: Check
    signed: Mapping[int, str]  # hashes that something outside the database vouches for, by seq

    @property
    def mac(self) -> Callable[[bytes], bytes] | None:
        return self.by.of_row if isinstance(self.by, Keys) and self.layout.key.exists() else None

    @property
    def known(self) -> int:
        """The last row that can explain what is missing; a public key proves no row after the last anchor."""
        return max(self.signed, default=0) if isinstance(self.by, PublicKey) else 2**63 - 1


async def verify(path: Path, public: PublicKey | None = None, archive: Path | None = None) -> Verification:
    """Walk the whole log. A segment that cannot be read is a problem of the log, not an error of the walk.

    ``public`` is for a machine that has a copy of the log but not its key, which is then not read.
    ``archive`` has segments that the retention took: they are walked as if they were there.
    Raises AuditUnavailable where the newest segment cannot be read at all, was written by a newer console, or where
    something in the folder is no part of a log.
    """
    layout = Layout(path, archive)
    for place in (layout, *([Layout(archive / path.name)] if archive else [])):
        if strange := place.strange():
            hint = f"it was put there: look at it, then remove it from {place.folder}"
            raise AuditUnavailable(f"the audit log cannot be checked: {strange}", hint=hint)
    anchors = Anchors(layout.anchors, layout.key)
    # What vouches for rows is read first, the head before the anchors: what it names is there by now.
    head, beheaded = (None, "") if public else _head(layout, anchors.keys)
    signed, problem = anchors.read(public)
    shipped = ship.place(layout.cursor)  # the same
    found = _Found()
    vouched = {one.seq: one.hash for one in signed} | ({head.seq: head.hash} if head else {})
    log = _Log(layout, public or anchors.keys, vouched)
    indices = layout.indices()
    indices = [*layout.archived(indices[0]), *indices] if indices else []
    for index in indices:
        await _segment(log, index, found, newest=index == indices[-1])
    if problem:
        found.fail(problem)
    _against_each_other(log, indices, signed, found)
    _against_gap(anchors.last() if signed and public is None else None, found)
    _against_cursor(shipped, found)
    _reserve(log, found)
    _altered(found)
    if public is None:
        _against_head(log, head, beheaded, signed, found)
    if anchors.torn:
        found.warnings.append("the last anchor is incomplete, as after a power cut or on a full disk")
    limits = (*found.warnings, *LIMITS, *(BY_PUBLIC_KEY if public else ()))
    last = found.head.hex() if found.rows else ""
    return Verification(not found.problem, found.rows, last, found.first_bad, found.problem,
                        max(0, found.attempts - found.ends), found.unknown, limits,
                        segments=found.segments, anchors=len(signed),
                        anchored_at=signed[-1].at_ns / 1e9 if signed else None)  # fmt: skip


def _against_each_other(log: _Log, indices: Sequence[int], signed: list[Anchor], found: _Found) -> None:
    """Whether segments are missing without a row that says so, or rows that an anchor names."""
    gone = indices[0] - 1 if indices else 0
    if gone and gone not in found.retired and not log.layout.quarantine(gone).exists():
        found.fail(f"segment {gone} is missing, and no row says that retention removed it")
    _against_anchors(log, signed, found)


def _altered(found: _Found) -> None:
    for other in found.altered:
        found.fail(other)
    if found.forged:
        found.fail(f"row {found.forged} has no signature of this log's key: it was forged", found.forged)


def _head(layout: Layout, keys: Keys) -> tuple[Head | None, str]:
    """The head; read again if a writer may have been in the middle of it."""
    for _ in range(5):
        head, problem = HeadFile(layout.head, keys).read()
        if not problem:
            break
        time.sleep(0.005)
    return head, problem


async def _segment(log: _Log, index: int, found: _Found, *, newest: bool) -> None:
    layout = log.layout
    try:
        async with reading(layout.stored(index)) as db:
            if db is None:
                return
            told, walked = await unit(db, lambda: _walk(db._conn, log, index, found, newest=newest))  # noqa: SLF001
    except AuditUnavailable as error:
        if newest:
            raise
        if not _left(log, index, found):
            found.fail(f"segment {index}: {error.message}")
        return
    found.segments += 1
    found.rows += told["rows"]
    found.attempts += told["attempts"]
    found.ends += told["ends"]
    found.unknown += told["unknown"]
    found.last, found.head = walked.last, walked.head
    found.forged = found.forged or walked.forged
    if walked.went_back is not None:
        found.warnings.append(f"the clock went back before row {walked.went_back}; the order is that of the ids")
    if _left(log, index, found, newest=newest):
        return  # the next segment's beginning tells of it
    if walked.problem:
        found.fail(walked.problem, walked.bad)
    if told["damage"]:
        found.fail(f"segment {index} is damaged: {told['damage']}")
    _note_altered(log, index, told, found)
    if not newest:  # as it was before the walk: another console may seal a segment while it is walked
        found.altered += _against_manifest(log, index, found.form, told["rows"], walked)


def _left(log: _Log, index: int, found: _Found, *, newest: bool = False) -> bool:
    """Whether a console left the segment as damaged; a note of that which none signed is a problem itself."""
    left, problem = segments.read_signed(log.layout.quarantine(index), log.by)
    if problem:
        found.fail(problem)
    if left is not None and newest:
        found.fail(f"segment {index} was damaged and left, and none follows it")
    return left is not None


def _note_altered(log: _Log, index: int, told: Mapping[str, Any], found: _Found) -> None:
    opened = f"segment {index} was opened to be changed: "
    if told["altered"]:
        found.altered.append(opened + told["altered"])
    # No console that signs none made a later form.
    before, _ = segments.read_signed(log.layout.manifest(index - 1), log.by, unsigned=found.form == 1)
    if told["carried"] != (before or {}).get("carried", told["carried"] if before else segments.fingerprint([])):
        found.altered.append(opened + "its table carried is not as made")


def _against_manifest(log: _Log, index: int, form: int, count: int, walked: Walk) -> list[str]:
    told, problem = segments.read_signed(log.layout.manifest(index), log.by, unsigned=form == 1)
    if told is None:
        return [problem or f"the manifest of segment {index} is missing"]
    same = (told["rows"], told["last_seq"], told["last_hash"]) == (count, walked.last, walked.head.hex())
    return [] if same else [f"segment {index} does not match its manifest"]


def _walk(db: sqlite3.Connection, log: _Log, index: int, found: _Found, *, newest: bool) -> tuple[dict[str, Any], Walk]:
    db.execute("BEGIN")
    try:
        head = schema.head_of(db)
        if problem := _link(log, index, head, found) or _older(db, log, index, found):
            found.fail(problem, head.first_seq)
        told: dict[str, Any] = {
            "damage": segments.damage(db, indexes=True) or segments.garbage(db, log.layout.stored(index)),
            "rows": 0,
            "attempts": 0,
            "ends": 0,
            "unknown": 0,
        }
        told["altered"] = schema.altered(db, closed=not newest)
        told["carried"] = segments.fingerprint(schema.carried(db))
        found.signs = found.signs or schema.signs(db)
        columns = f"{_COLUMNS}, mac" if found.form > 1 else _COLUMNS
        rows = db.execute(f"SELECT {columns} FROM record ORDER BY seq")  # noqa: S608
        try:
            walked = chain.walk(head.genesis, head.first_seq - 1, rows, log.signed, found.form, log.mac)
            told |= _counts(db)
            found.retired |= _retired(db, log.known)
            found.altered += _told_by_consoles(db)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            walked = Walk(head.first_seq - 1, head.genesis, None, f"segment {index} cannot be read: {error}")
        return told, walked
    finally:
        db.execute("ROLLBACK")


def _older(db: sqlite3.Connection, log: _Log, index: int, found: _Found) -> str:
    """Note the segment's form; it is a problem if it is older than an earlier one, which no console writes."""
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
        return {told["segment"] for [body] in rows for told in json.loads(body)["removed"]}
    return set()


def _told_by_consoles(db: sqlite3.Connection) -> list[str]:
    """The problems that consoles saw and recorded."""
    sql = "SELECT seq, action FROM record WHERE action IN (?, ?, ?) AND kind = 'checkpoint' ORDER BY seq"
    words = {CHANGED: "rows that a console had written before it were missing or different",
             UNANCHORED: "the anchors or their key were missing, and new ones were started",
             FOREIGN: "bytes that are no part of an anchor followed the last anchor"}  # fmt: skip
    return [f"row {seq} says: {words[action]}" for seq, action in db.execute(sql, tuple(words)).fetchall()]


def _link(log: _Log, index: int, head: schema.Head, found: _Found) -> str:
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
    told, problem = segments.read_signed(log.layout.manifest(index - 1), log.by, unsigned=True)
    if found.segments:
        return f"segment {index - 1} is missing"
    if told is None:
        return problem or f"segment {index - 1} is missing, and there is no manifest for it"
    if (told["last_seq"] + 1, told["last_hash"]) != (head.first_seq, head.genesis.hex()):
        return f"segment {index} does not follow segment {index - 1} as its manifest says"
    found.warnings.append(f"rows up to {told['last_seq']} were removed by retention; their manifests remain")
    return ""


def _after_damage(layout: Layout, index: int, head: schema.Head, left: Mapping[str, Any]) -> str:
    if (left["last_seq"] + 1, left["link"]) != (head.first_seq, head.genesis.hex()):
        return f"segment {index} does not follow the damaged segment {index - 1} as was recorded"
    if layout.stored(index - 1).exists():
        return f"segment {index - 1} was damaged and left: {left['problem']}"
    return f"segment {index - 1} was damaged and left ({left['problem']}), and is not here any more"


def _against_anchors(log: _Log, signed: list[Anchor], found: _Found) -> None:
    if signed and signed[-1].seq > found.last and not found.problem:
        last = signed[-1]
        found.fail(
            f"the tail was cut: row {last.seq} was anchored, and the log ends at row {found.last}", found.last + 1
        )
    if signed or not found.rows:
        return
    if isinstance(log.by, PublicKey):
        found.fail("no anchor is signed: the public key proves nothing about this log")
        return
    if found.signs and not log.layout.key.exists():
        found.fail("the anchors and their key are missing, though this log has been anchored")
    if log.layout.key.exists() and (not log.layout.anchors.exists() or found.rows > 2 * ANCHOR_EVERY):
        found.fail("the anchors are missing, though this log has been anchored")
    else:
        found.warnings.append("no anchors: a missing tail is not noticed")


def _against_head(log: _Log, head: Head | None, problem: str, signed: list[Anchor], found: _Found) -> None:
    """The head may be behind the log, if a console died between the two, but never ahead of it."""
    end = max(found.last, found.waiting)
    if problem or (head is None and found.form > 1 and found.rows):
        found.fail(problem or f"{log.layout.head.name} is missing, though this log has one")
    elif head is None or not head.console:
        return
    elif head.console != found.console:
        found.fail(f"{log.layout.head.name} is of another log")
    elif head.seq > end:
        found.fail(f"the tail was cut: row {head.seq} was written, and the log ends at row {end}", end + 1)
    elif head.anchored > (signed[-1].seq if signed else 0):
        found.fail(f"anchors were cut: row {head.anchored} was anchored last, and its anchor is gone")


def _against_gap(last: Anchor | None, found: _Found) -> None:
    """``last`` is read after the walk: others write meanwhile, and sign every so many rows under the same lock."""
    if last and found.last - last.seq > 2 * ANCHOR_EVERY:
        found.fail(
            f"the anchors end at row {last.seq}, the log at row {found.last}: some are missing or could not be written"
        )


def _against_cursor(place: tuple[str, int], found: _Found) -> None:
    console, shipped = place
    if console == found.console and shipped > found.last:
        found.fail(f"the tail was cut: row {shipped} was shipped, and the log ends at row {found.last}", found.last + 1)


def _reserve(log: _Log, found: _Found) -> None:
    waiting = [row for row in Reserve(log.layout.reserve).rows() if row[0] > found.last]
    if waiting and not found.problem:
        walked = chain.walk(found.head, found.last, waiting, log.signed, found.form, log.mac)
        found.warnings.append(f"{len(waiting)} rows wait in the reserve until the database takes them")
        if walked.problem:
            found.fail(f"in the reserve: {walked.problem}", walked.bad)
        found.forged = found.forged or walked.forged
        found.rows += len(waiting)
        found.waiting, found.head = walked.last, walked.head
