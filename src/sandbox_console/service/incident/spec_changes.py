"""What an update changed, from its row in the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


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
