"""Small settings that are kept across runs as JSON in the state folder: layouts, columns, views."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox_console.hostfs.own_files import load_own, write_own
from sandbox_console.service.people.identity import VARIABLE
from sandbox_console.service.reads.visible_records import person_of

_MOST_BYTES = 1 << 20


def folder_for(actor: str, state: Path) -> Path:
    """Where the settings are of whoever this process works for: the state folder, or a folder of the person's own.

    ``actor`` is the name in the audit log. A person must neither see nor change what others have saved.
    """
    if VARIABLE not in os.environ:
        return state
    folder = state / "people" / hashlib.sha256(person_of(actor).encode()).hexdigest()[:16]
    with suppress(OSError):  # saving reports it
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def read_saved(path: Path, valid: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
    """Return the saved settings, or an empty dict if there are none.

    A damaged file, or one that is not ``valid``, is renamed and the user is told: saving would overwrite it.
    """

    def decode(data: bytes) -> dict[str, Any]:
        kept = json.loads(data)
        if not isinstance(kept, dict) or not valid(kept):
            raise TypeError
        return kept

    return load_own(path, _MOST_BYTES, decode) or {}


def save(path: Path, data: dict[str, Any]) -> None:
    """Save settings, readable only by their owner. Raises OSError, and then the previous settings remain.

    This writes a few hundred bytes after a key press, so it is not worth a thread.
    """
    write_own(path, json.dumps(data).encode())
