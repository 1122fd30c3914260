"""What happened to sandboxes, from every source, on one time axis."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from sandbox_console.model.sandbox import SandboxRef


class Source(StrEnum):
    """The source of a moment."""

    BACKEND = "backend"  # its own events
    STATE = "state"  # the times in its list, if it stores no events
    AUDIT = "audit"
    EGRESS = "egress"
    LOG = "log"  # lines at level error or above


class Moment(Struct, frozen=True):
    """One thing that happened. ``at`` is in seconds since the epoch, by the clock of the source.

    ``text`` is what the guest or the backend wrote, with known secrets masked; every view has to clean it. ``seq`` is
    the row of the audit log. A ``count`` above 1 stands for that many in a row, the last one at ``last_at``.
    """

    at: float
    ref: SandboxRef
    name: str
    source: Source
    what: str
    text: str = ""
    seq: int | None = None
    count: int = 1
    last_at: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name, "ref": str(self.ref), "at": self.at, "source": str(self.source), "what": self.what,
            "text": self.text, "seq": self.seq, "count": self.count, "last_at": self.last_at,
        }  # fmt: skip


class Missing(Struct, frozen=True):
    """A source that is incomplete, and why."""

    ref: SandboxRef
    name: str
    source: Source
    why: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"name": self.name, "ref": str(self.ref), "missing": str(self.source), "why": self.why}


class Timeline(Struct, frozen=True):
    """Moments in order of time, and what could not be read."""

    moments: tuple[Moment, ...]
    missing: tuple[Missing, ...] = ()
