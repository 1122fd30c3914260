"""The sections in which a cause is shown, on the command line and in the app."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from sandbox_console.model.audit import AuditEntry
from sandbox_console.model.egress import OUTCOMES, REASONS, EgressRecord
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service.incident.cause import DENIED_S, Cause

FIELDS = ("FIELD", "HERE", "THERE")
"""The head of ``Section.rows``."""


class Section(Struct, frozen=True):
    """A heading with lines, or with rows of a table. The texts may come from a guest and are not cleaned."""

    head: str
    lines: tuple[str, ...] = ()
    rows: tuple[tuple[str, str, str], ...] = ()


def sections(cause: Cause, now: float, duration: Callable[[float], str]) -> Iterator[Section]:
    """Yield the sections that say something. The first is the verdict. ``duration`` puts seconds into words."""
    yield _verdict(cause)
    denied = tuple(_denial(cause.sandbox, one) for one in cause.denied)
    every = (
        Section("Evidence", cause.verdict.evidence if cause.verdict else ()),
        Section("Its last lines", cause.last_words),
        Section(f"Denied or failed in the {DENIED_S:.0f} s before", denied),
        *_changes(cause, now, duration),
        Section(f"Unlike {cause.beside}, which is healthy", rows=cause.differs),
        Section("What would have settled it", cause.missing),
    )
    yield from (one for one in every if one.lines or one.rows)


def _verdict(cause: Cause) -> Section:
    judged = cause.verdict
    if judged is None:
        return Section("Why", (f"it is {cause.sandbox.status}: it has not ended",))
    return Section("Why" if judged.sure else "Why (not sure)", (judged.headline,))


def _denial(sandbox: Sandbox, record: EgressRecord) -> str:
    end = sandbox.finished_at
    before = f", {max(0.0, end - record.at):.1f} s before" if end else ""
    return (
        f"{record.host}:{record.port} {OUTCOMES[record.outcome]}: {REASONS.get(record.reason, record.reason)}{before}"
    )


def _changes(cause: Cause, now: float, duration: Callable[[float], str]) -> Iterator[Section]:
    """The changes, and apart from the others those since it last worked, if that is known."""
    worked = cause.worked_at
    since = [one for one in cause.changed if worked is not None and one.attempt.at_ns / 1e9 >= worked]
    before = [one for one in cause.changed if one not in since]
    if worked is not None:
        none = () if since else ("nothing that the audit log knows",)
        head = f"Changed since it last worked, {duration(now - worked)} ago"
        yield Section(head, (*(_change(one, now, duration) for one in since), *none))
    yield Section("Changed before" if since else "Changed by", tuple(_change(one, now, duration) for one in before))


def _change(entry: AuditEntry, now: float, duration: Callable[[float], str]) -> str:
    row = entry.attempt
    placed = "" if row.placed else " (not placed)"
    line = f"audit row {row.seq}{placed}: {row.action} by {row.actor}, {duration(now - row.at_ns / 1e9)} ago"
    changed = ", ".join(fields_changed(row.body))
    return f"{line}: {entry.outcome or 'in flight'}" + (f" ({changed})" if changed else "")


def fields_changed(body: Mapping[str, Any]) -> Sequence[str]:
    """The fields that an update changed, as ``memory_mib: 64 → 32``; of variables only that they changed."""
    diff = body.get("diff")
    return [_field(str(key), change) for key, change in diff.items()] if isinstance(diff, dict) else []


def _field(key: str, change: object) -> str:
    if key == "env" or not isinstance(change, list) or len(change) != 2:
        return key
    return f"{key}: {_value(change[0])} → {_value(change[1])}"


def _value(value: object) -> str:
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return "-" if value in (None, "", {}) else str(value)
