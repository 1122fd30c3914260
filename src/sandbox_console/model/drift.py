"""Compares what a sandbox was asked to be with what its backend finds now, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, structs

from sandbox_console.model.action import Update
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import BY_NAME, FIELDS

FIXED = "it cannot change while the sandbox exists"
_UNREPORTED = "this backend does not report it"
NETWORK = "network"
RESTART = "restart_policy"
SWAP = "swap"
CPUSET = "cpuset"
SHARES = "cpu_shares"
CPUSET_MEMS = "cpuset_mems"
RESERVATION = "memory_reservation"
BLKIO = "blkio_weight"
REALTIME = "cpu_realtime"
OWN_NETWORK = "its own"
MADE: Mapping[str, str] = {
    NETWORK: OWN_NETWORK, RESTART: "no", SWAP: "none", CPUSET: "every CPU", SHARES: "1024",
    CPUSET_MEMS: "every memory node", RESERVATION: "none", BLKIO: "default", REALTIME: "none",
}  # fmt: skip
"""What is no field of a spec: how the console makes every sandbox. What is found of it is empty unless it differs."""

LASTING = frozenset({CPUSET_MEMS, RESERVATION, BLKIO, REALTIME})
"""Those that an engine cannot take back, as it reads the value for "not set" as "leave it as it is"."""

_LASTS = "the engine cannot take it back while the sandbox exists: the next edit that recreates it does"

_PLACES = ("workspace", "image")
"""Fields that drift when something on this machine is moved or removed, which the console cannot undo."""

_LIVE = ("name", "cpus", "memory_mib", "pids")
"""Fields that another tool can set to a value that a spec can have."""


class DriftState(StrEnum):
    """Whether a field matches the spec."""

    SAME = "same"
    DRIFTED = "drifted"
    UNKNOWN = "unknown"


class FieldDrift(Struct, frozen=True):
    """One field: what was ``asked`` and what is ``found``, each as in a spec; None is "not requested", or unknown.

    ``effective`` is how the backend words what is in effect. ``note`` says why it is unknown, or why it cannot drift.
    ``by`` and ``at`` (seconds since the epoch) are who changed it and when, by the audit log row ``audit_id``; without
    such a row ``by`` is ``outside the console``. They are set only for drifted fields.
    """

    field: str
    asked: Any
    found: Any
    state: DriftState
    effective: str = ""
    note: str = ""
    by: str = ""
    at: float | None = None
    audit_id: int | None = None


def drifted(sandbox: Sandbox) -> tuple[str, ...]:
    """The fields of a sandbox that differ from its spec, as far as its backend reports them."""
    spec = sandbox.spec
    if spec is None or not sandbox.found:
        return ()
    return tuple(name for name, value in sandbox.found.items() if getattr(spec, name, "") != value)


def compare(sandbox: Sandbox) -> list[FieldDrift]:
    """Every field that was asked for or is found to be set, in the order of the form. Empty for another tool's."""
    if sandbox.spec is None:
        return []
    effective = {fact.field: fact.value for fact in sandbox.effective}
    rows = [_compared(sandbox, sandbox.spec, field.name, effective.get(field.name, "")) for field in FIELDS]
    for name, made in MADE.items():
        if wrong := sandbox.found.get(name):
            rows.append(FieldDrift(name, made, wrong, DriftState.DRIFTED))
    return [row for row in rows if row is not None]


def _compared(sandbox: Sandbox, spec: SandboxSpec, name: str, effective: str) -> FieldDrift | None:
    asked = getattr(spec, name)
    if name in sandbox.found:
        found = sandbox.found[name]
        if not asked and not found:
            return None
        state = DriftState.SAME if asked == found else DriftState.DRIFTED
        return FieldDrift(name, asked, found, state, effective)
    if not asked or name in ("labels", "limits"):
        return None
    if reason := sandbox.untold.get(name, "" if sandbox.found else _UNREPORTED):
        return FieldDrift(name, asked, None, DriftState.UNKNOWN, effective, reason)
    return FieldDrift(name, asked, asked, DriftState.SAME, effective, FIXED)


def current(sandbox: Sandbox, spec: SandboxSpec, new: SandboxSpec) -> dict[str, Any]:
    """The fields of a sandbox's spec, with what is found now in place of what was asked, to compare with a new one.

    Egress is as asked, since its rules are changed by rules and not by a spec, unless the new spec has the rules that
    are in force.
    """
    values = {name: getattr(spec, name) for name in spec.__struct_fields__}
    values |= {name: sandbox.found[name] for name in drifted(sandbox) if name in _LIVE}
    rules = sandbox.found.get("egress")
    return values | ({"egress": new.egress} if isinstance(rules, tuple) and set(rules) == set(new.egress) else {})


class DriftRepair(Struct, frozen=True):
    """How to end the drift of a sandbox: the action, None if there is nothing that it could change.

    ``left`` says by field why it cannot be ended this way.
    """

    action: Update | None = None
    left: Mapping[str, str] = {}


def reapply(sandbox: Sandbox) -> DriftRepair:
    """What makes a sandbox as it was asked to be."""
    if sandbox.spec is None:
        return DriftRepair()
    fields = drifted(sandbox)
    gone = {name: f"{sandbox.found[name]}: put it back, or change the spec" for name in fields if name in _PLACES}
    gone |= {name: _LASTS for name in fields if name in LASTING}
    return DriftRepair(Update(sandbox.ref, sandbox.spec, drift="reapply") if set(fields) - set(gone) else None, gone)


def adopt(sandbox: Sandbox) -> DriftRepair:
    """What takes a sandbox as it is for what was asked. Nothing else about it changes."""
    if sandbox.spec is None:
        return DriftRepair()
    fields = drifted(sandbox)
    left = {name: reason for name in fields if (reason := _not_askable(sandbox, name, sandbox.found[name]))}
    taken = {name: sandbox.found[name] for name in fields if name not in left}
    return DriftRepair(Update(sandbox.ref, _adopted(sandbox.spec, taken), drift="adopt") if taken else None, left)


def _not_askable(sandbox: Sandbox, name: str, value: Any) -> str:
    """Why a spec cannot ask for what is found; empty if it can."""
    if sandbox.spec is None or name in (*MADE, *_PLACES) or (name == "egress" and isinstance(value, str)):
        return f"a spec cannot ask for it: {value}"
    try:
        _adopted(sandbox.spec, {name: value})
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _adopted(spec: SandboxSpec, fields: Mapping[str, Any]) -> SandboxSpec:
    """The spec with these found values. Raises TypeError, ValueError for one that a spec cannot have."""
    read = {name: None if value is None else BY_NAME[name].read(value) for name, value in fields.items()}
    return structs.replace(spec, **read)
