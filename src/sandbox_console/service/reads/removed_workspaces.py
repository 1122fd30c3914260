"""Remembers the workspaces of removed sandboxes, since what their guests planted there is still in them.

A workspace is forgotten when its folder is gone: when another folder has its place, or when nothing has been there for
90 days, so that a disk that is not mounted for a while is not forgotten. A folder that was moved is recognised until
the machine restarts.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from sandbox_console.hostfs.kernel import birth_of

MOST = 500
"""How many workspaces are remembered, the newest ones. Each costs about 0.1 ms whenever the folders are looked up."""
_ABSENT_S = 90 * 86_400.0
_MOST_EACH = 8


class FolderRecord(Struct, frozen=True, array_like=True):
    """A folder as it was when it was given to a guest."""

    device: int
    inode: int
    born: int


class RemovedWorkspace(Struct, frozen=True):
    """A workspace whose sandbox is gone: since when, in seconds since 1970, and the folders that it was.

    ``boot`` says when the numbers of devices were read: they change when the machine restarts.
    """

    since: float
    boot: str
    was: tuple[FolderRecord, ...]

    def in_place(self, path: str) -> bool:
        """Whether one of these folders has the path now."""
        there = look(path)
        return there is not None and any(self._same(one, there) for one in self.was)

    @property
    def moved(self) -> tuple[FolderRecord, ...]:
        """The folders, to be recognised wherever they are now; none after a restart, or without a time of birth."""
        return tuple(one for one in self.was if one.born) if self.boot == boot_id() else ()

    def gone(self, path: str) -> bool:
        """Whether nothing of it is left, as far as can be known."""
        if self.moved or self.in_place(path):
            return False
        return os.path.lexists(path) or time.time() - self.since > _ABSENT_S

    def _same(self, one: FolderRecord, there: FolderRecord) -> bool:
        same = (one.inode, one.born) == (there.inode, there.born)
        return same and (one.device == there.device or self.boot != boot_id())


def removed(path: str, seen: Iterable[FolderRecord]) -> RemovedWorkspace:
    """The record of a workspace that no sandbox has from now on."""
    there = look(path)
    was = dict.fromkeys((*seen, *(() if there is None else (there,))))
    return RemovedWorkspace(time.time(), boot_id(), tuple(was)[-_MOST_EACH:])


def kept(found: Mapping[str, RemovedWorkspace]) -> dict[str, RemovedWorkspace]:
    """The workspaces that still exist, at most the newest 500."""
    left = [(path, one) for path, one in found.items() if not one.gone(path)]
    return dict(sorted(left, key=lambda each: (-each[1].since, each[0]))[:MOST])


def look(folder: str) -> FolderRecord | None:
    """What is at a path now; None if it is no folder."""
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        st = os.fstat(fd)
        return FolderRecord(st.st_dev, st.st_ino, birth_of(fd))
    finally:
        os.close(fd)


@functools.cache
def boot_id() -> str:
    """What distinguishes this start of the machine from others; empty if it is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
