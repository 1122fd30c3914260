"""Verifies the log: every row of every segment, the anchors outside it, and the manifests of removed segments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from sandbox_console.audit import ship, urgent_rows
from sandbox_console.audit.anchors import Anchor, Anchors
from sandbox_console.audit.end_proof import ANCHOR_EVERY
from sandbox_console.audit.head import Head, HeadFile
from sandbox_console.audit.keys import Keys, PublicKey
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.verify_segment import Findings, Log, walk_reserve, walk_segment
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.audit import Verification

LIMITS = (
    "whoever can read anchor.key can rewrite log and anchors together; only a copy in journald or elsewhere shows it",
    "an older copy of log and anchors together looks whole; only a copy in journald or elsewhere shows what is missing",
    "what was done without this console is in no row",
)
_HEAD_TRIES, _HEAD_WAIT_S = 20, 0.005
"""How long a console that has just committed a row may take to write the head."""
BY_PUBLIC_KEY = (
    "with the public key: whether rows after the last signed anchor are the console's, and whether some were cut",
)


async def verify(path: Path, public: PublicKey | None = None, archive: Path | None = None) -> Verification:
    """Walk the whole log. A segment that cannot be read is reported as a problem and does not raise.

    ``public`` is for a machine that has a copy of the log but not its key, which is then not read.
    ``archive`` has segments that the retention moved; they are walked as if they were still there.
    Raises AuditUnavailable if the newest segment cannot be read at all or was written by a newer console, or if
    something in the folder does not belong to a log.
    """
    layout = Layout(path, archive)
    for one in (layout, *([Layout(archive / path.name)] if archive else [])):
        _refuse_strange(one)
    anchors = Anchors(layout.anchors, layout.key)
    # The proofs of rows are read first, and the head before the anchors, so that the anchor it names already exists.
    head, beheaded = (None, "") if public else _head(layout, anchors.keys)
    signed, problem = anchors.read(public)
    shipped = ship.shipped_position(layout.cursor)  # the same
    found = Findings()
    vouched = {anchor.seq: anchor.hash for anchor in signed} | ({head.seq: head.hash} if head else {})
    log = Log(layout, public or anchors.keys, vouched, head.digested if head else 0)
    indices = await _walk_segments(log, found)
    if problem:
        found.fail(problem)
    _against_each_other(log, indices, signed, found)
    _against_gap(anchors.last() if signed and public is None else None, found)
    _against_cursor(shipped, found)
    walk_reserve(log, found)
    _count_urgent(layout, found)
    if public is None:
        _against_head(log, head, beheaded, signed, found)
    _altered(found)
    if anchors.torn:
        found.warnings.append("the last anchor is incomplete, as after a power cut or on a full disk")
    return _result(found, signed, (*found.warnings, *LIMITS, *(BY_PUBLIC_KEY if public else ())))


def _refuse_strange(layout: Layout) -> None:
    if strange := layout.strange():
        hint = f"it was put there: look at it, then remove it from {layout.folder}"
        raise AuditUnavailable(f"the audit log cannot be checked: {strange}", hint=hint)


async def _walk_segments(log: Log, found: Findings) -> Sequence[int]:
    """Walk every segment, the archived ones first. Returns their numbers."""
    there = log.layout.indices()
    indices = [*log.layout.archived(there[0]), *there] if there else []
    for index in indices:
        await walk_segment(log, index, found, newest=index == indices[-1])
    return indices


def _count_urgent(layout: Layout, found: Findings) -> None:
    """Warn of urgent rows beside the log."""
    waiting, unread, missing = urgent_rows.waiting_in(layout.sessions)
    found.warnings += unread
    for gone in missing:
        found.fail(gone)
    if waiting:
        found.warnings.append(
            f"{waiting} urgent rows wait in {layout.sessions.name}/ until a console has the log's lock"
        )


def _result(found: Findings, signed: Sequence[Anchor], limits: tuple[str, ...]) -> Verification:
    return Verification(
        not found.problem, found.rows, found.head.hex() if found.rows else "", found.first_bad, found.problem,
        max(0, found.attempts - found.ends), found.unknown, limits, segments=found.segments, anchors=len(signed),
        anchored_at=signed[-1].at_ns / 1e9 if signed else None, compared=found.compared,
    )  # fmt: skip


def _against_each_other(log: Log, indices: Sequence[int], signed: list[Anchor], found: Findings) -> None:
    """Check whether segments are missing without a row that says so, or rows that an anchor names."""
    gone = indices[0] - 1 if indices else 0
    if gone and gone not in found.retired and not log.layout.quarantine(gone).exists():
        found.fail(f"segment {gone} is missing, and no row says that retention removed it")
    _against_anchors(log, signed, found)


def _altered(found: Findings) -> None:
    for other in found.altered:
        found.fail(other)
    if found.forged:
        found.fail(f"row {found.forged} has no signature of this log's key: it was forged", found.forged)


def _head(layout: Layout, keys: Keys) -> tuple[Head | None, str]:
    """The head. It is read again if a writer may have been in the middle of writing it."""
    for _ in range(5):
        head, problem = HeadFile(layout.head, keys).read()
        if not problem:
            break
        time.sleep(0.005)
    return head, problem


def _against_anchors(log: Log, signed: list[Anchor], found: Findings) -> None:
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


def _against_head(log: Log, head: Head | None, problem: str, signed: list[Anchor], found: Findings) -> None:
    """Check the head: it may be behind the log, if a console died between the two writes, but never ahead of it."""
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
    elif head.seq < found.last and (older := _set_back(log, found.last)):
        found.warnings.append(older)


def _set_back(log: Log, end: int) -> str:
    """What can be told of a head that stays behind the log; empty if a console was about to write it."""
    seq = 0
    for _ in range(_HEAD_TRIES):
        head, _ = HeadFile(log.layout.head, Keys(log.layout.key)).read()
        if head is None or head.seq >= end:
            return ""
        seq = head.seq
        time.sleep(_HEAD_WAIT_S)
    return (
        f"whether {log.layout.head.name} was set back: it is from row {seq}, and the log ends at row {end}; a kill "
        "or a power cut can leave that"
    )


def _against_gap(last: Anchor | None, found: Findings) -> None:
    """``last`` is read after the walk, because others write meanwhile and sign at intervals under the log's lock."""
    if last and found.last - last.seq > 2 * ANCHOR_EVERY:
        found.fail(
            f"the anchors end at row {last.seq}, the log at row {found.last}: some are missing or could not be written"
        )


def _against_cursor(position: tuple[str, int], found: Findings) -> None:
    console, shipped = position
    if console == found.console and shipped > found.last:
        found.fail(f"the tail was cut: row {shipped} was shipped, and the log ends at row {found.last}", found.last + 1)
