"""Rows as OCSF 1.8.0 API Activity events (class 6003, https://schema.ocsf.io/1.8.0/classes/api_activity)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sandbox_console

VERSION = "1.8.0"
_CLASS, _CATEGORY = 6003, 6
_CREATE, _READ, _UPDATE, _DELETE, _OTHER = 1, 2, 3, 4, 99
_ACTIVITY = {
    "create": _CREATE, "restore": _CREATE, "fork": _CREATE, "snapshot": _CREATE, "commit": _CREATE, "pull": _CREATE,
    "load-image": _CREATE, "download": _READ, "save-image": _READ, "update": _UPDATE, "rename": _UPDATE,
    "upload": _UPDATE, "remove": _DELETE, "remove-image": _DELETE, "prune-images": _DELETE, "remove-snapshot": _DELETE,
}  # fmt: skip
_SUCCESS, _FAILURE, _UNKNOWN = 1, 2, 0
_STATUS = {"ok": _SUCCESS, "": _UNKNOWN, "unknown": _UNKNOWN}
_NAMES = {_SUCCESS: "Success", _FAILURE: "Failure", _UNKNOWN: "Unknown"}
_INFORMATIONAL, _LOW, _MEDIUM = 1, 2, 3
_SEVERITY = {"denied": _MEDIUM, "unknown": _MEDIUM, "failed": _LOW, "timed_out": _LOW}

_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes an encoder for each call


def lines(rows: Sequence[Sequence[Any]]) -> bytes:
    """A JSON line for each row."""
    return "".join([_encode(event(row)) + "\n" for row in rows]).encode()


def event(row: Sequence[Any]) -> dict[str, Any]:
    """One row as an event; what OCSF has no place for, the chain among it, is in ``unmapped``."""
    seq, ts_ns, kind, ref, actor, session, request, action, backend, target, outcome, dur_us, body, prev, digest = row
    told = _body(body)
    activity = _ACTIVITY.get(action, _OTHER)
    status = _STATUS.get(outcome, _FAILURE)
    made: dict[str, Any] = {
        "activity_id": activity,
        "category_uid": _CATEGORY,
        "class_uid": _CLASS,
        "type_uid": _CLASS * 100 + activity,
        "time": ts_ns // 1_000_000,
        "severity_id": _SEVERITY.get(outcome, _INFORMATIONAL),
        "status_id": status,
        "status": _NAMES[status],
        "actor": {"user": {"name": actor}, "session": {"uid": session}},
        "api": {"operation": action, "request": {"uid": request or str(seq)}, "service": {"name": "sandbox-console"}},
        "src_endpoint": {"name": str(told.get("origin", {}).get("host") or "unknown")},
        "resources": [{"uid": target, "type": "sandbox", "namespace": backend}] if target else [],
        "metadata": {
            "version": VERSION,
            "uid": str(seq),
            "product": {"name": "sandbox-console", "vendor_name": "sandbox-console", "version": _version()},
            "log_name": "audit",
        },
        "unmapped": {"kind": kind, "ref": ref, "phase": kind, "body": told, "prev": prev.hex(), "hash": digest.hex()},
    }
    if dur_us is not None:
        made["duration"] = dur_us // 1000
    if error := told.get("error"):
        made["message"] = str(error)
    if outcome:
        made["status_detail"] = outcome
    return made


def _version() -> str:
    return sandbox_console.__version__


def _body(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"damaged": text}
    return found if isinstance(found, dict) else {"damaged": text}
