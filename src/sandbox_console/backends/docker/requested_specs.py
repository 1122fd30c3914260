"""Stores what a container was last asked to be, if that is no longer what its labels say.

Labels cannot be changed on an existing container. Its limits and its name can, also by other tools, so what the engine
reports is not what was asked for.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from sandbox_console.errors import BackendError, ConsoleError
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.model.spec import SandboxSpec

_ID = re.compile(r"[0-9a-f]{12,64}")

_MOST_BYTES = 1 << 20


class RequestedSpecs:
    """A file for each container of one engine; in memory if there is no folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: dict[str, SandboxSpec] = {}

    def get(self, id: str) -> SandboxSpec | None:
        """What a container was last asked to be; None if its labels still say that, or if the file is damaged."""
        if self._folder is None:
            return self._memory.get(id)
        with suppress(OSError, ValueError, TypeError, RecursionError, ConsoleError):
            return SandboxSpec.from_dict(json.loads(read_own(self._path(id), _MOST_BYTES)))
        return None

    def put(self, id: str, spec: SandboxSpec) -> None:
        """Store a spec, on disk when this returns. Raises BackendError."""
        if self._folder is None:
            self._memory[id] = spec
            return
        part = self._path(id).with_suffix(f".{secrets.token_hex(4)}.part")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(json.dumps(spec.to_dict()).encode())
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path(id))
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            text = f"the change was made, but what was asked cannot be kept in {self._folder}: {error.strerror}"
            raise BackendError(text, hint="free disk space; until then it is shown as drift") from error

    def forget(self, id: str) -> None:
        """Remove the entry of a container that is gone."""
        self._memory.pop(id, None)
        if self._folder is not None:
            with suppress(OSError):
                self._path(id).unlink()

    def _path(self, id: str) -> Path:
        if self._folder is None or not _ID.fullmatch(id):
            raise OSError(0, f"{id!r} is not a container's id")
        return self._folder / f"{id}.json"
