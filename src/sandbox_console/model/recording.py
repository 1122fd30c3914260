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
    """One recording. ``at`` is when it began (seconds since the epoch); ``audit_id`` is its shell's row."""

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


class RecordingMatch(Struct, frozen=True):
    """A line of a recording that contains the searched text. ``at_s`` is seconds since the recording began."""

    recording: Recording
    at_s: float
    line: str
