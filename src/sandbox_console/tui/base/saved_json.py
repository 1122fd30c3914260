"""Small settings that are kept across runs as JSON in the state folder: layouts, columns, views."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20


def read_saved(path: Path) -> dict[str, Any]:
    """Return the saved settings, or an empty dict if there are none or they cannot be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= _MOST_BYTES:
            kept = json.loads(path.read_text())
            return kept if isinstance(kept, dict) else {}
    return {}


def save(path: Path, data: dict[str, Any]) -> None:
    """Save settings, readable only by their owner. Raises OSError, and then the previous settings remain.

    This writes a few hundred bytes after a key press, so it is not worth a thread.
    """
    part = path.with_suffix(".part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(data, file)
    part.replace(path)
