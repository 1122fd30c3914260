"""The data of the audit log: rows, queries, and the result of a verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field


class Kind(StrEnum):
    """The kind of a row. Every attempt is followed by one outcome or, after a crash, one unknown."""

    ATTEMPT = "attempt"
    OUTCOME = "outcome"
    UNKNOWN = "unknown"
    NOTE = "note"
    CHECKPOINT = "checkpoint"  # about the log itself: removed segments, rows that came from the reserve
    ROTATE = "rotate"  # the last row of a segment


class Outcome(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    FAILED = "failed"
    DENIED = "denied"
    UNSUPPORTED = "unsupported"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"


class AuditRow(Struct, frozen=True):
    """One row. ``ref`` is its attempt (None for an attempt itself); ``at_ns`` is nanoseconds since the epoch."""

    seq: int
    at_ns: int
    kind: Kind
    ref: int | None
    actor: str
    session: str
    request_id: str
    action: str
    backend: str
    target: str
    outcome: str
    dur_us: int | None
    body: Mapping[str, Any]
    hash: str

    @property
    def placed(self) -> bool:
        """Whether it has a place in the chain. The seq of one that waits for the log's lock is negative."""
        return self.seq > 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "seq": self.seq, "at_ns": self.at_ns, "kind": str(self.kind), "ref": self.ref, "actor": self.actor,
            "session": self.session, "request_id": self.request_id, "action": self.action, "backend": self.backend,
            "target": self.target, "outcome": self.outcome, "dur_us": self.dur_us, "body": dict(self.body),
            "hash": self.hash,
        }  # fmt: skip


class AuditEntry(Struct, frozen=True):
    """An attempt and how it ended: ``audit ls`` and the screens show it as one line."""

    attempt: AuditRow
    end: AuditRow | None = None
    notes: tuple[AuditRow, ...] = ()

    @property
    def outcome(self) -> str:
        """The outcome as a word; empty while the attempt is in flight."""
        return self.end.outcome if self.end else ""


class AuditQuery(Struct, frozen=True):
    """Which attempts to read, newest first. ``target`` is a sandbox's ref as text.

    ``text`` is searched for in target, action and body. ``outcome`` may name several outcomes, separated by commas.
    Times are seconds since the epoch; ``until`` is exclusive. ``before_seq`` is the last id of the previous page.
    """

    limit: int = 50
    target: str = ""
    action: str = ""
    outcome: str = ""
    backend: str = ""
    actor: str = ""
    text: str = ""
    since: float | None = None
    until: float | None = None
    before_seq: int | None = None


class Verification(Struct, frozen=True):
    """The result of checking the whole log. ``first_bad`` is the first invalid row.

    ``limits`` is what the check could not find out; ``anchored_at`` is when the newest anchor was signed.
    ``compared`` is the number of segments of which every byte was compared with what a console left.
    """

    ok: bool
    rows: int
    head: str
    first_bad: int | None = None
    problem: str = ""
    open_attempts: int = 0
    unknown: int = 0
    limits: tuple[str, ...] = field(default=())
    segments: int = 0
    anchors: int = 0
    anchored_at: float | None = None
    compared: int = 0


class AuditSelection(Struct, frozen=True):
    """Which rows to export: those after ``after_seq`` within a span of time (seconds since the epoch)."""

    after_seq: int = 0
    since: float | None = None
    until: float | None = None


class AuditStats(Struct):
    """Counts over the whole log: attempts by action, actor and backend, and outcomes."""

    rows: int = 0
    segments: int = 0
    bytes: int = 0
    first_at: float | None = None
    last_at: float | None = None
    actions: Counter[str] = field(default_factory=Counter)
    actors: Counter[str] = field(default_factory=Counter)
    backends: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
