"""Stores a record of each open shell, so that a later console can end it and note its end.

Other work that a killed console leaves half done is recorded in the same way.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from sandbox_console.background_process import ProcessFolder
from sandbox_console.hostfs.own_files import leave_damaged, read_own
from sandbox_console.model.action import OpenShell

_MOST = 64 * 1024
Record = TypeVar("Record", bound=Struct)


class ShellRecord(Struct, frozen=True, kw_only=True):
    """One shell or marked command: its row in the audit log, its sandbox, and a mark of its processes.

    ``began`` is in seconds since the epoch. ``kept`` is the name of a kept shell, whose holder writes how it ``ended``.
    ``viewed`` is that of one to which a console is attached: only the console's leaving is to be noted.
    """

    audit_id: int
    ref: str
    name: str
    actor: str
    began: float
    user: str | None = None
    mark: str = ""
    recording: str = ""
    kept: str = ""
    viewed: str = ""
    ended: dict[str, Any] | None = None
    verb: str = OpenShell.verb


class HeldRecord:
    """A record of this process. Its lock shows that the process is alive, and the kernel releases it in any case."""

    def __init__(self, folder: Path, process_folder: ProcessFolder, id_: str, lock: int) -> None:
        self.id, self._path = id_, folder / f"{id_}.json"
        self._folder, self._lock = process_folder, lock

    def write(self, record: Struct) -> None:
        """Write the record, 0600. Raises OSError."""
        self._folder.write(f"{self.id}.json", msgspec.json.encode(record))

    def read(self, kind: type[Record]) -> Record:
        """Read a record of this kind. Raises OSError; ValueError if it is damaged."""
        return _read(self._folder, self.id, kind)

    @property
    def lock(self) -> int:
        """The descriptor of its lock. Another process that gets it holds the record, too."""
        return self._lock

    def set_aside(self, reason: str) -> None:
        """Keep a damaged record as NAME.damaged, which is told, and let it go."""
        if self._lock >= 0:
            leave_damaged(self._path, reason)
            self._folder.leave(self.id)
            self.release()

    def remove(self) -> None:
        """Remove the record, as the end is recorded. Safe to call twice."""
        if self._lock >= 0:
            with suppress(FileNotFoundError):
                os.unlink(f"{self.id}.json", dir_fd=self._folder.fd)
            self._folder.leave(self.id)
            self.release()

    def release(self) -> None:
        """Leave the record to the next console. Safe to call twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            self._folder.close()


class ShellRecords:
    """The records in one state folder. Everything here is quick and blocks; callers use a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> HeldRecord:
        """A new, empty record of this process. Raises OSError."""
        process_folder = ProcessFolder(str(self.folder), make=True)
        try:
            while (lock := process_folder.take(id_ := secrets.token_hex(6))) is None:
                continue
        except BaseException:
            process_folder.close()
            raise
        return HeldRecord(self.folder, process_folder, id_, lock)

    def lost(self) -> Iterator[HeldRecord]:
        """The records whose process is gone, each locked for the caller, who removes it or lets it go."""
        for id_ in self._ids():
            if (record := self.take(id_)) is not None:
                yield record

    def take(self, id_: str) -> HeldRecord | None:
        """One record, if its process is gone: locked for the caller. Raises OSError."""
        process_folder = ProcessFolder(str(self.folder))
        lock = process_folder.take(id_)
        if lock is None:
            process_folder.close()
            return None
        return HeldRecord(self.folder, process_folder, id_, lock)

    def kept(self) -> Iterator[tuple[str, ShellRecord]]:
        """The kept shells whose record is there, each with its id."""
        try:
            process_folder = ProcessFolder(str(self.folder))
        except OSError:
            return
        try:
            for id_ in self._ids():
                with suppress(OSError, ValueError):
                    record = _read(process_folder, id_, ShellRecord)
                    if record.kept:
                        yield id_, record
        finally:
            process_folder.close()

    def _ids(self) -> list[str]:
        try:
            return sorted(path.stem for path in self.folder.glob("*.json"))
        except OSError:
            return []


def _read(process_folder: ProcessFolder, id_: str, kind: type[Record]) -> Record:
    try:
        return msgspec.json.decode(read_own(f"{id_}.json", _MOST, process_folder.fd), type=kind)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
