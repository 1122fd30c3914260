"""The objects that ``--json`` prints. Their keys are stable, because scripts use them (docs/cli.md lists them)."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sandbox_console.model.audit import AuditEntry
from sandbox_console.model.drift import FieldDrift
from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.log import LogGap, LogRecord
from sandbox_console.model.sandbox import BackendHealth, Sandbox, Stats
from sandbox_console.service import Allow, Ask, Decision, Deny, Plan


def plain(value: object) -> dict[str, Any]:
    """A Struct as plain JSON data."""
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def line(value: object) -> str:
    """One object as one line of ASCII: whatever could act on a terminal is escaped."""
    # json escapes C0 and everything that is not ASCII; DEL is the only control that it leaves.
    return json.dumps(value, ensure_ascii=True, default=str).replace("\x7f", "\\u007f")


def payload(data: bytes) -> dict[str, str]:
    """Bytes as ``data`` if they are UTF-8, else as ``data_b64``, so that nothing is lost."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_b64": base64.b64encode(data).decode()}


def whole_characters(data: bytes) -> tuple[bytes, bytes]:
    """Split off the beginning of a character that the next chunk will complete."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    partial = len(decoder.getstate()[0])
    return (data[: len(data) - partial], data[len(data) - partial :]) if partial else (data, b"")


def sandbox(found: Sandbox) -> dict[str, Any]:
    """A sandbox as ``ls`` prints it."""
    return {
        "name": found.name,
        "ref": str(found.ref),
        "backend": found.ref.backend,
        "host": found.ref.host,
        "id": found.ref.id,
        "status": str(found.status),
        "image": found.image,
        "created_at": found.created_at,
        "started_at": found.started_at,
        "finished_at": found.finished_at,
        "exit": plain(found.exit) if found.exit else None,
        "labels": dict(found.labels),
        "managed": found.managed,
        "maker": found.maker,
        "detail": found.detail,
    } | ({"quarantine": found.quarantine} if found.quarantine else {})


def drift(row: FieldDrift) -> dict[str, Any]:
    """A field that was compared with the spec."""
    values = {"asked": row.asked, "found": row.found}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return plain(row) | lists | {"state": str(row.state)}


def details(found: Sandbox, rows: Sequence[FieldDrift]) -> dict[str, Any]:
    """A sandbox as ``show`` prints it, with what differs from what was asked."""
    return sandbox(found) | {
        "pid": found.pid,
        "restarts": found.restarts,
        "spec": found.spec.to_dict() if found.spec else None,
        "effective": [plain(fact) for fact in found.effective],
        "drift": [drift(row) for row in rows],
    }


def health(backend_health: BackendHealth) -> dict[str, Any]:
    """A backend's health."""
    found = plain(backend_health) | {"state": str(backend_health.state)}
    return found if backend_health.since else {key: value for key, value in found.items() if key != "since"}


def stats(sandbox: Sandbox, sample: Stats) -> dict[str, Any]:
    """One sample of a sandbox."""
    return {"name": sandbox.name, "ref": str(sandbox.ref)} | plain(sample)


def log_item(sandbox: Sandbox, item: LogRecord | LogGap) -> dict[str, Any]:
    """A line of output, or a gap in it."""
    head: dict[str, Any] = {"name": sandbox.name, "ref": str(sandbox.ref), "at_ns": item.at_ns}
    if isinstance(item, LogGap):
        return head | {"gap": item.reason, "lines": item.lines}
    partial = {} if item.data.endswith(b"\n") else {"partial": True}  # a piece of a line, or a last line without an end
    return head | {"stream": str(item.stream)} | payload(item.data) | partial


def entry(found: AuditEntry) -> dict[str, Any]:
    """An action on record as ``audit ls`` prints it."""
    row = found.attempt
    return {
        "id": row.seq,
        "placed": row.placed,
        "at_ns": row.at_ns,
        "actor": row.actor,
        "action": row.action,
        "backend": row.backend,
        "target": (found.end.target if found.end else "") or row.target,
        "name": name_on_record(found),
        "outcome": found.outcome,
        "dur_us": found.end.dur_us if found.end else None,
        "error": str(found.end.body.get("error", "")) if found.end else "",
    }


def name_on_record(entry: AuditEntry) -> str:
    """The sandbox's name at the time when the action was requested."""
    body = entry.attempt.body
    spec = body.get("spec")
    name = body.get("name") or (spec.get("name", "") if isinstance(spec, Mapping) else "")
    return str(name or entry.attempt.target)


def decision(found: Decision) -> dict[str, str]:
    """What the policy says."""
    match found:
        case Allow():
            return {"outcome": "allow", "reason": "", "rule": "", "capability": "", "hint": ""}
        case Ask(reason, rule, token):
            hint = f"--confirm {token}" if token else "--yes"
            return {"outcome": "ask", "reason": reason, "rule": rule, "capability": "", "hint": hint}
        case Deny(reason, rule, capability, hint):
            return {"outcome": "deny", "reason": reason, "rule": rule, "capability": capability, "hint": hint}


def egress_record(record: EgressRecord) -> dict[str, Any]:
    """One decision of a gateway."""
    return plain(record) | {"outcome": str(record.outcome)}


def plan(found: Plan) -> dict[str, Any]:
    """The changes of an update, and the most drastic way in which one of them is made."""
    changes = [plain(change) | {"how": str(change.how)} for change in found.changes]
    return {"how": str(found.how) if found.how else "nothing", "changes": changes, "notes": list(found.notes)}
