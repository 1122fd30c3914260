"""Finds out who changed what differs from a spec, and which actions put it back or take it for what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action, ChangeEgress, DenyEgress, Rename, Update
from sandbox_console.model.audit import AuditEntry, AuditQuery, Outcome
from sandbox_console.model.drift import NETWORK, DriftState, FieldDrift, adopted, compare, drifted
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service.gate.trail import Trail
from sandbox_console.service.reads.egress import Outbound
from sandbox_console.service.reads.egress_draft import change_to

OUTSIDE = "outside the console"
_LOOKED_AT = 100
_PLACES = ("workspace", "image")
"""Fields that drift when something on this machine is moved or removed, which the console cannot undo."""


class Mend(Struct, frozen=True):
    """What to perform to end the drift of a sandbox. ``left`` says by field why it cannot be ended this way."""

    actions: tuple[Action, ...] = ()
    left: Mapping[str, str] = {}


class Drifts:
    """Drift of the sandboxes of one console. It asks no backend for a list: what differs is in ``Sandbox.found``."""

    def __init__(self, trail: Trail, egress: Outbound) -> None:
        self._trail, self._egress = trail, egress

    async def fields(self, sandbox: Sandbox) -> Sequence[FieldDrift]:
        """Every field, and who changed those that differ. The sandbox must have been inspected."""
        rows = compare(sandbox)
        if not any(row.state is DriftState.DRIFTED for row in rows):
            return rows
        try:
            entries = await self._trail.entries(AuditQuery(limit=_LOOKED_AT, target=str(sandbox.ref)))
        except ConsoleError as error:
            who: Mapping[str, Any] = {"by": "unknown", "note": f"the audit log cannot be read: {error.message}"}
            return [structs.replace(row, **who) if row.state is DriftState.DRIFTED else row for row in rows]
        return [_blamed(row, entries) if row.state is DriftState.DRIFTED else row for row in rows]

    async def reapply(self, sandbox: Sandbox) -> Mend:
        """What makes a sandbox as it was asked to be. Raises ConsoleError if its egress rules cannot be read."""
        spec, fields = sandbox.spec, drifted(sandbox)
        if spec is None or not fields:
            return Mend()
        actions: list[Action] = []
        if "egress" in fields:
            rules = (await self._egress.state(sandbox.ref)).rules
            asked = [EgressRule(pattern) for pattern in spec.egress]
            if (change := change_to(sandbox.ref, rules, asked)) is not None:
                actions.append(change)
        if set(fields) - {"egress", *_PLACES}:
            actions.append(Update(sandbox.ref, spec))
        gone = {name: f"{sandbox.found[name]}: put it back, or change the spec" for name in fields if name in _PLACES}
        return Mend(tuple(actions), gone)

    def adopt(self, sandbox: Sandbox) -> Mend:
        """What takes a sandbox as it is for what was asked for. Nothing else about it changes."""
        if sandbox.spec is None:
            return Mend()
        taken: dict[str, Any] = {}
        left: dict[str, str] = {}
        for name in drifted(sandbox):
            value = sandbox.found[name]
            if why := _not_askable(sandbox, name, value):
                left[name] = why
            else:
                taken[name] = value
        return Mend((Update(sandbox.ref, adopted(sandbox, taken), adopt=True),) if taken else (), left)


def _not_askable(sandbox: Sandbox, name: str, value: Any) -> str:
    """Why a spec cannot ask for what is found; empty if it can."""
    if name in (NETWORK, *_PLACES) or (name == "egress" and isinstance(value, str)):
        return f"a spec cannot ask for it: {value}"
    try:
        adopted(sandbox, {name: value})
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


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
