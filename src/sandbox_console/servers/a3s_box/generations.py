"""Which generation of a sandbox is meant: it is another after each start but the first, whoever started it.

A file of our own for each sandbox has its generation, and the times at which it was made and started then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from sandbox_console.hostfs import file_lock
from sandbox_console.hostfs.own_files import NOT_OURS, read_own, write_own
from sandbox_console.model.sandbox import Sandbox

_MOST_BYTES = 4096


class Generation(Struct, frozen=True):
    """A generation, and the run that it stands for. ``operation`` is the restart that made it."""

    number: int = 1
    created_at: float | None = None
    started_at: float | None = None
    operation: str = ""


class Generations:
    """Those of the sandboxes of one host, in a folder that is made with the first of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, sandbox: Sandbox, operation: str = "") -> Generation:
        """The generation of a sandbox as it is now. ``operation`` is noted with it."""
        with self._locked():
            known = self._read(sandbox.ref.id)
            found = _now(known, sandbox)
            if operation:
                found = structs.replace(found, operation=operation)
            if found != known:
                write_own(self._file(sandbox.ref.id), msgspec.json.encode(found))
            return found

    def drop(self, id_: str) -> None:
        """Forget a sandbox."""
        self._file(id_).unlink(missing_ok=True)

    def _read(self, id_: str) -> Generation | None:
        try:
            return msgspec.json.decode(read_own(self._file(id_), _MOST_BYTES), type=Generation)
        except (OSError, *NOT_OURS):
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / ".lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            file_lock.take(fd, path)
            yield
        finally:
            os.close(fd)

    def _file(self, id_: str) -> Path:
        return self._folder / f"{id_.replace('/', '%2F')}.json"


def _now(known: Generation | None, sandbox: Sandbox) -> Generation:
    made, started = sandbox.created_at, sandbox.started_at
    if known is None:
        return Generation(1, made, started)
    if known.created_at != made:
        return Generation(known.number + 1, made, started)
    if started is None or started == known.started_at:
        return known
    number = known.number if known.started_at is None else known.number + 1
    return structs.replace(known, number=number, started_at=started)
