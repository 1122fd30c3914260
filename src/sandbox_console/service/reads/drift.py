"""Finds out who changed what differs from a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import ChangeEgress, DenyEgress, Rename, Update
from sandbox_console.model.audit import AuditEntry, AuditQuery, Outcome
from sandbox_console.model.drift import DriftState, FieldDrift, compare
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service.gate.audit_log import AuditLog

OUTSIDE = "outside the console"
_LOOKED_AT = 100


class Drifts:
    """Drift of the sandboxes of one console. It asks no backend for a list: what differs is in ``Sandbox.found``."""

    def __init__(self, audit_log: AuditLog) -> None:
        self._audit_log = audit_log

    async def fields(self, sandbox: Sandbox) -> Sequence[FieldDrift]:
        """Every field, and who changed those that differ. The sandbox must have been inspected."""
        rows = compare(sandbox)
        if not any(row.state is DriftState.DRIFTED for row in rows):
            return rows
        try:
            entries = await self._audit_log.entries(AuditQuery(limit=_LOOKED_AT, target=str(sandbox.ref)))
        except ConsoleError as error:
            who: Mapping[str, Any] = {"by": "unknown", "note": f"the audit log cannot be read: {error.message}"}
            return [structs.replace(row, **who) if row.state is DriftState.DRIFTED else row for row in rows]
        return [_blamed(row, entries) if row.state is DriftState.DRIFTED else row for row in rows]


def _blamed(row: FieldDrift, entries: Sequence[AuditEntry]) -> FieldDrift:
    """The row with the newest action on record that touched the field, if it can have led to what is found."""
    entry = next((one for one in entries if _touches(one, row.field)), None)
    if entry is None or not _led_to(entry, row):
        return structs.replace(row, by=OUTSIDE)
    attempt = entry.attempt
    return structs.replace(row, by=attempt.actor, at=attempt.at_ns / 1e9, audit_id=attempt.seq)


def _touches(entry: AuditEntry, field: str) -> bool:
    attempt = entry.attempt
    if entry.outcome in (Outcome.DENIED, Outcome.UNSUPPORTED):
        return False
    match attempt.action:
        case Update.verb:
            return field in attempt.body.get("diff", {})
        case Rename.verb:
            return field == "name"
        case ChangeEgress.verb | DenyEgress.verb:
            return field == "egress"
    return False


def _led_to(entry: AuditEntry, row: FieldDrift) -> bool:
    """Whether an action wanted the value that is found. One that succeeded is what was asked for, except for rules."""
    body = entry.attempt.body
    match entry.attempt.action:
        case Update.verb:
            change = body["diff"][row.field]
            return isinstance(change, list) and len(change) == 2 and change[1] == row.found
        case Rename.verb:
            return bool(body.get("name") == row.found)
    return True
