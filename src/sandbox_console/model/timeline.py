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
    SAMPLE = "sample"  # what it used, as far as the caller measured it


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


class ClockDifference(Struct, frozen=True):
    """How far a host's clock is ahead of this machine's, in seconds; below 0 it is behind."""

    backend: str
    host: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"backend": self.backend, "host": self.host, "clock_ahead_s": round(self.seconds, 3)}

    def __str__(self) -> str:
        way = "ahead of" if self.seconds > 0 else "behind"
        return f"the clock of {self.backend}/{self.host} is {abs(self.seconds):.1f} s {way} this machine's"


class Timeline(Struct, frozen=True):
    """Moments in order of time, what could not be read, and the hosts whose clocks differ from this machine's."""

    moments: tuple[Moment, ...]
    missing: tuple[Missing, ...] = ()
    clocks: tuple[ClockDifference, ...] = ()
