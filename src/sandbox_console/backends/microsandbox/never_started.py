"""Stores sandboxes that were created but never started.

The runtime has no such state: it boots whatever it creates. So they are stored here, one file per sandbox, until their
first start. The file's name is the sandbox's, so a name taken by one console is at once taken for all.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sandbox_console.backends.common.messages import name_taken
from sandbox_console.errors import BackendError, ConsoleError
from sandbox_console.model.spec import SandboxSpec


class Pending(Struct, frozen=True):
    """A sandbox that waits for its first start. ``created_at`` is seconds since the epoch."""

    id: str
    spec: SandboxSpec
    created_at: float


class PendingStore:
    """The files under ``folder``. The methods do file I/O, so call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, id: str, spec: SandboxSpec) -> Pending:
        """Store an entry. Raises Conflict if another one has the name."""
        one = Pending(id, spec, time.time())
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(one)
        except OSError as error:
            raise BackendError(f"the sandbox cannot be kept in {self.folder}: {error.strerror}") from error
        return one

    def all(self) -> list[Pending]:
        """Every entry that can be read."""
        found = [self._read(path) for path in self.folder.glob("*.json")] if self.folder.is_dir() else []
        return [one for one in found if one is not None]

    def get(self, id: str) -> Pending | None:
        """The entry with this id."""
        return next((one for one in self.all() if one.id == id), None)

    def change(self, one: Pending, spec: SandboxSpec) -> None:
        """Replace its spec and name. Raises Conflict if the name is taken."""
        changed = replace(one, spec=spec)
        if spec.name != one.spec.name:
            self._write(changed)
            self.remove(one)
            return
        temporary = self._path(spec.name).with_suffix(".new")
        temporary.write_text(_text(changed))
        temporary.replace(self._path(spec.name))

    def remove(self, one: Pending) -> None:
        """Remove an entry. It is no error if it is gone."""
        self._path(one.spec.name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _write(self, one: Pending) -> None:
        # It is written to another file and linked, so that a reader never sees half of it.
        temporary = self.folder / f".{one.id}.{os.getpid()}"
        temporary.write_text(_text(one))
        try:
            os.link(temporary, self._path(one.spec.name))
        except FileExistsError:
            raise name_taken(one.spec.name) from None
        finally:
            temporary.unlink(missing_ok=True)

    def _read(self, path: Path) -> Pending | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, ConsoleError):
            data: dict[str, Any] = json.loads(path.read_text())
            return Pending(data["id"], SandboxSpec.from_dict(data["spec"]), data["created_at"])
        return None


def _text(one: Pending) -> str:
    return json.dumps({"id": one.id, "created_at": one.created_at, "spec": one.spec.to_dict()}, ensure_ascii=False)
