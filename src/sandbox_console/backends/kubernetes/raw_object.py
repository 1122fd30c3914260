"""The whole object of a Sandbox or Pod, without the values of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sandbox_console.backends.kubernetes import annotations as own
from sandbox_console.errors import BackendError

_HIDDEN = ("kubectl.kubernetes.io/last-applied-configuration", own.SPEC)
"""Annotations that repeat the object, with the values of its variables."""


def public(data: bytes) -> Mapping[str, Any]:
    """An object as it may be shown. Raises BackendError if it is none."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise BackendError(f"the object cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise BackendError("the object cannot be read: it is no table")
    meta = found.get("metadata")
    if isinstance(meta, dict):
        meta.pop("managedFields", None)
        notes = meta.get("annotations")
        if isinstance(notes, dict):
            for name in _HIDDEN:
                notes.pop(name, None)
    _mask(found)
    return found


def _mask(value: Any) -> None:
    """Replace the values of variables of containers, wherever they are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "env" and isinstance(inner, list):
                for one in inner:
                    if isinstance(one, dict) and "value" in one:
                        one["value"] = "***"
            _mask(inner)
    elif isinstance(value, list):
        for inner in value:
            _mask(inner)
