"""Stores a record of each open shell, so that a later console can end it and note its end.

Other work that a killed console leaves half done is recorded in the same way.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from sandbox_console.background_process import ProcessFolder

_MOST = 64 * 1024
Record = TypeVar("Record", bound=Struct)


class ShellRecord(Struct, frozen=True, kw_only=True):
    """One shell: its row in the audit log, its sandbox, and a mark of its processes.

    ``began`` is in seconds since the epoch.
    """

    audit_id: int
    ref: str
    name: str
    actor: str
    began: float
    user: str | None = None
    mark: str = ""
    recording: str = ""


class HeldRecord(Generic[Record]):
    """A record of this process. Its lock shows that the process is alive, and the kernel releases it in any case."""

    def __init__(self, place: ProcessFolder, id_: str, lock: int, kind: type[Record]) -> None:
        self.id = id_
        self._place, self._lock, self._kind = place, lock, kind

    def write(self, record: Record) -> None:
        """Write the record, 0600. Raises OSError."""
        fresh = f"{self.id}.new"
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=self._place.fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(fresh, flags, 0o600, dir_fd=self._place.fd), "wb") as file:  # noqa: PTH123 - in an open folder
            file.write(msgspec.json.encode(record))
        os.rename(fresh, f"{self.id}.json", src_dir_fd=self._place.fd, dst_dir_fd=self._place.fd)

    def read(self) -> Record:
        """Read the record. Raises OSError; ValueError if it is damaged."""
        file = os.open(f"{self.id}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._place.fd)
        try:
            return msgspec.json.decode(os.read(file, _MOST), type=self._kind)
        finally:
            os.close(file)

    def remove(self) -> None:
        """Remove the record, as the end is recorded. Safe to call twice."""
        if self._lock >= 0:
            with suppress(FileNotFoundError):
                os.unlink(f"{self.id}.json", dir_fd=self._place.fd)
            self._place.leave(self.id)
            self.let_go()

    def let_go(self) -> None:
        """Leave the record to the next console. Safe to call twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            self._place.close()


class HeldRecords(Generic[Record]):
    """The records in one folder of the state. Everything here is quick and blocks; callers use a thread."""

    def __init__(self, folder: Path, kind: type[Record]) -> None:
        self.folder, self._kind = folder, kind

    def begin(self) -> HeldRecord[Record]:
        """A new, empty record of this process. Raises OSError."""
        place = ProcessFolder(str(self.folder), make=True)
        try:
            while (lock := place.take(id_ := secrets.token_hex(6))) is None:
                continue
        except BaseException:
            place.close()
            raise
        return HeldRecord(place, id_, lock, self._kind)

    def lost(self) -> Iterator[HeldRecord[Record]]:
        """The records whose process is gone, each locked for the caller, who removes it or lets it go."""
        for id_ in self._ids():
            place = ProcessFolder(str(self.folder))
            lock = place.take(id_)
            if lock is None:
                place.close()
            else:
                yield HeldRecord(place, id_, lock, self._kind)

    def _ids(self) -> list[str]:
        try:
            return sorted(path.stem for path in self.folder.glob("*.json"))
        except OSError:
            return []
