"""Stores which containers have a maximum duration or an idle time: a file for each, in this console's state.

Labels would not do, as images and other clients can give containers any label. What is written here was requested
through this console, and applies to one container of one engine.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from sandbox_console.errors import BackendError
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.model.spec import SandboxSpec

_BLOCK = 2048  # rewritten in place, so that a full disk cannot keep a container from being ended
_ID = re.compile(r"[0-9a-f]{12,64}")

_MOST_BYTES = 1 << 20


class Lifetime(Struct, frozen=True):
    """One container's limits, and its current run.

    ``engine`` is the engine's own id. ``run`` is when the engine started it, in the engine's words; it began at
    ``began_s`` of the monotonic clock of the boot ``boot``, which no change of the time of day moves. ``why`` is the
    reason for the end of the run ``ended``; ``unrecorded`` is set until that end is in the audit log.
    """

    id: str
    engine: str
    name: str
    max_duration_s: float | None = None
    idle_timeout_s: float | None = None
    run: str = ""
    boot: str = ""
    began_s: float = 0.0
    ended: str = ""
    why: str = ""
    unrecorded: bool = False


class LifetimeFiles:
    """The files. If a console has none for a container, it knows of no limit for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, id: str, engine: str, spec: SandboxSpec) -> None:
        """Write a container's limits, on disk when this returns. Raises BackendError."""
        lifetime = Lifetime(id, engine, spec.name, spec.max_duration_s, spec.idle_timeout_s)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(lifetime, os.O_CREAT | os.O_EXCL)
        except OSError as error:
            self.forget(id)
            text = f"the time limit of {spec.name} cannot be kept in {self._folder}: {os.strerror(error.errno or 0)}"
            raise BackendError(text, hint="free disk space, or leave max_duration_s and idle_timeout_s out") from error

    def put(self, lifetime: Lifetime) -> None:
        """Change an existing entry. A disk that cannot be written is no error: the limit still holds."""
        with suppress(OSError):
            self._write(lifetime, 0)

    def forget(self, id: str) -> None:
        """Remove the entry of a container that is gone."""
        with suppress(OSError, ValueError):
            self._path(id).unlink()
            self._path(id).with_suffix(".held").unlink(missing_ok=True)

    def hold(self, id: str, held: bool) -> None:
        """Suspend a container's limits, or enforce them again. Raises BackendError."""
        path = self._path(id).with_suffix(".held")
        try:
            path.touch(mode=0o600) if held else path.unlink(missing_ok=True)
        except OSError as error:
            raise BackendError(
                f"the time limit of {id[:12]} cannot be held in {self._folder}: {error.strerror}"
            ) from error

    def is_on_hold(self, id: str) -> bool:
        """Whether a container's limits are suspended."""
        return self._path(id).with_suffix(".held").exists()

    def get(self, id: str) -> Lifetime | None:
        """The entry of a container; None if it has no limit, or the file is not one of ours."""
        try:
            lifetime = msgspec.json.decode(read_own(self._path(id), _MOST_BYTES).strip(), type=Lifetime)
        except (OSError, ValueError, RecursionError):  # msgspec's errors are among them
            return None
        return lifetime if lifetime.id == id else None

    def all(self, engine: str) -> list[Lifetime]:
        """All entries of one engine."""
        try:
            names = sorted(os.listdir(self._folder))  # noqa: PTH208 - pathlib costs three times as much
        except OSError:
            return []
        found = [self.get(name.removesuffix(".json")) for name in names if name.endswith(".json")]
        return [lifetime for lifetime in found if lifetime is not None and lifetime.engine == engine]

    def _path(self, id: str) -> Path:
        if not _ID.fullmatch(id):
            raise ValueError(id)
        return self._folder / f"{id}.json"

    def _write(self, lifetime: Lifetime, flags: int) -> None:
        data = json.dumps(structs.asdict(lifetime)).encode()
        fd = os.open(self._path(lifetime.id), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            size = max(os.fstat(fd).st_size, -(-len(data) // _BLOCK) * _BLOCK)
            if os.pwrite(fd, data.ljust(size), 0) < size:
                raise OSError(28, "no space")
            if flags:
                os.fsync(fd)
        finally:
            os.close(fd)


def asks(spec: SandboxSpec | None) -> bool:
    """Whether a spec has a time limit."""
    return spec is not None and (spec.max_duration_s is not None or spec.idle_timeout_s is not None)
