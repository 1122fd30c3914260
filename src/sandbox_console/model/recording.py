"""A recorded shell."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from sandbox_console.model.sandbox import SandboxRef


class Check(StrEnum):
    """What the audit log says about a recording's file."""

    HOLDS = "holds"
    CHANGED = "changed"
    UNENDED = "unended"
    """No end is on record: the shell is open, or its console died."""


class Recording(Struct, frozen=True):
    """One recording. ``at`` is when it began (seconds since the epoch); ``audit_id`` is its row in the audit log.

    ``kind`` is shell or exec; a command that was run has ``command``, and its ``exit`` code if that is on record.
    """

    id: str
    name: str
    ref: SandboxRef | None
    actor: str
    at: float
    duration_s: float
    size_bytes: int
    audit_id: int
    check: Check = Check.UNENDED
    problem: str = ""
    kind: str = "shell"
    command: str = ""
    exit: int | None = None


class RecordingMatch(Struct, frozen=True):
    """A line of a recording that contains the searched text.

    ``at_s`` is when the line began, and ``ended_s`` when it was complete, in seconds since the recording began.
    """

    recording: Recording
    at_s: float
    line: str
    ended_s: float = 0.0
