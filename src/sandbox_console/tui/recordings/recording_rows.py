"""Recordings, and the lines that a search found in them, as rows of a table. Pure."""

from __future__ import annotations

from datetime import datetime

from sandbox_console.model.recording import Check, Recording, RecordingMatch
from sandbox_console.model.text import clean
from sandbox_console.tui.text.formatting import DASH, size, span
from sandbox_console.tui.widgets.table.table_layout import Column
from sandbox_console.tui.widgets.table.table_rows import Row

RECORDINGS = (
    Column("name", "SANDBOX", 8, 28, priority=0),
    Column("at", "BEGAN", 14, 14, priority=0),
    Column("kind", "KIND", 5, 5, priority=2),
    Column("lasted", "LASTED", 6, 8, "right", priority=1, largest=True),
    Column("size", "SIZE", 5, 8, "right", priority=3, largest=True),
    Column("actor", "BY", 6, 24, priority=4),
    Column("check", "CHECK", 7, 8, priority=1),
    Column("detail", "DETAIL", 8, 200, priority=5, flex=True),
)
MATCHES = (
    Column("name", "SANDBOX", 8, 24, priority=0),
    Column("began", "BEGAN", 14, 14, priority=2),
    Column("at", "AT", 8, 9, "right", priority=0),
    Column("line", "LINE", 20, 300, priority=0, flex=True),
)
CHECK_STYLES = {Check.HOLDS: "$text-success", Check.CHANGED: "$text-error", Check.UNENDED: "$text-warning"}
_CELL_STYLES = {Check.HOLDS: "ok", Check.CHANGED: "error", Check.UNENDED: "warn"}


def recording_row(recording: Recording) -> Row:
    """A recording. Its key is its id."""
    if recording.problem:
        problem = f"unreadable: {clean(recording.problem, cap=200)}"
        cells = (DASH, DASH, DASH, DASH, size(recording.size_bytes), DASH, DASH, f"{recording.id}  {problem}")
        return Row(recording.id, cells, ("dim",) * 7 + ("error",))
    ended = "" if recording.exit is None else f"exit {recording.exit}  "
    cells = (
        clean(recording.name, cap=100), when(recording.at), recording.kind, span(recording.duration_s),
        size(recording.size_bytes), clean(recording.actor, cap=60), str(recording.check),
        f"{ended}{clean(recording.command or recording.id, cap=200)}",
    )  # fmt: skip
    order = (
        recording.name, recording.at, recording.kind, recording.duration_s, recording.size_bytes, recording.actor,
        str(recording.check), recording.id,
    )  # fmt: skip
    return Row(recording.id, cells, ("", "", "dim", "", "dim", "dim", _CELL_STYLES[recording.check], "dim"), order)


def match_row(number: int, match: RecordingMatch) -> Row:
    """A line that was found. Its key is its number."""
    recording = match.recording
    cells = (clean(recording.name, cap=100), when(recording.at), clock(match.at_s), clean(match.line, cap=300))
    order = (recording.name, recording.at, match.at_s, match.line)
    return Row(number, cells, ("", "dim", "accent", ""), order)


def clock(seconds: float) -> str:
    """Seconds since the beginning as ``3:05`` or ``1:03:05``."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def when(at: float) -> str:
    """The local date and time of a recording's beginning."""
    try:
        return f"{datetime.fromtimestamp(at).astimezone():%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return DASH
