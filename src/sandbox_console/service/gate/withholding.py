"""Arguments that may hold a value nobody knows yet: a keyed hash stands in the row until the value was read."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from sandbox_console.secrets.sources import MIN_BYTES

_FIELDS = ("argv", "command", "shell")


def withheld(body: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    """``body`` with each argument that is long enough for a secret as a hash, also in the spec or diff in it."""
    return {
        name: _hashed(value, key)
        if name in _FIELDS
        else withheld(value, key)
        if name in ("spec", "diff") and isinstance(value, Mapping)
        else value
        for name, value in body.items()
    }


def arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    """What `withheld` takes from a body, by field."""
    found = {name: body[name] for name in _FIELDS if body.get(name)}
    for inner in ("spec", "diff"):
        if isinstance(body.get(inner), Mapping) and (more := arguments(body[inner])):
            found[inner] = more
    return found


def _hashed(value: Any, key: bytes) -> Any:
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return f"hmac:{hmac.new(key, data, hashlib.sha256).hexdigest()[:16]}" if len(data) >= MIN_BYTES else value
    return [_hashed(one, key) for one in value] if isinstance(value, (list, tuple)) else value
