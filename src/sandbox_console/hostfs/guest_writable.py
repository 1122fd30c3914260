"""Finds out which folders of this machine guests can change."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from sandbox_console.hostfs import mounts
from sandbox_console.hostfs.kernel import birth_of

Identity = tuple[int, int]
_NOBODY = -1


class MovedFolder(Struct, frozen=True):
    """A folder given to a guest by a path that may lead elsewhere now: the path, and when the folder was made.

    ``removed`` says that the sandbox is gone.
    """

    path: str
    born: int
    removed: bool = False


class Root(Struct, frozen=True):
    """A folder that guests can write to: its path on this machine, and its owner.

    ``born`` is when a moved folder was created, in ns, as another folder may have its inode number by now. ``removed``
    says that the guests that could write to it are gone, but not what they left.
    """

    path: str
    owner: int
    born: int = 0
    removed: bool = False


class GuestFolders(Struct, frozen=True):
    """The guests' ground: every folder that a guest can write, under all of its paths.

    ``private`` is a folder that no guest can reach, for incomplete files.
    """

    roots: dict[Identity, Root] = field(default_factory=dict)
    private: Path | None = None

    @classmethod
    def of(
        cls,
        folders: Iterable[str],
        private: Path | None = None,
        moved: Mapping[Identity, MovedFolder] | None = None,
        removed: Iterable[str] = (),
    ) -> GuestFolders:
        """Find the guests' folders, including bind mounts from inside them and overlays on top of them.

        ``moved`` are folders that guests have or had, wherever they are now; ``removed`` those of removed sandboxes.
        """
        roots: dict[Identity, Root] = {}
        parts = [(_real(folders), False), (_real(removed), True)]
        for real, over in parts:
            for path in sorted(real):
                _add(roots, path, removed=over)
        gone = {one: was for one, was in (moved or {}).items() if one not in roots}
        if roots or gone:
            known = mounts.read()
            for real, over in parts:
                theirs = [spot for path in real for spot in mounts.spots(path, known)]
                left = {one: was for one, was in gone.items() if was.removed == over}
                for mount in known:
                    if mount.point not in real and (_exposes(mount, theirs, known) or _shows(mount, left, known)):
                        _add(roots, mount.point, removed=over)
        for identity, was in gone.items():
            roots.setdefault(identity, Root(was.path, _NOBODY, was.born, was.removed))
        return cls(roots, private)

    def holds(self, fd: int) -> Root | None:
        """The guests' folder that is the same as an open folder, if there is one. Raises OSError."""
        st = os.fstat(fd)
        root = self.roots.get((st.st_dev, st.st_ino))
        if root is None or not root.born:
            return root
        return replace(root, owner=st.st_uid) if birth_of(fd) == root.born else None

    def reaches_into(self, folder: str) -> bool:
        """Whether part of the guests' ground is below a folder."""
        return any(mounts.within(root.path, folder) for root in self.roots.values())


NOBODYS = GuestFolders()
"""Used for paths that belong to no guest."""

AROUND: ContextVar[GuestFolders] = ContextVar("ground", default=NOBODYS)
"""The ground of the current task, for code that it cannot be passed to, such as reading a secret's file."""


def _exposes(mount: mounts.Mount, theirs: list[mounts.Spot], known: list[mounts.Mount]) -> bool:
    """Whether a mount is part of the guests' ground, or overlaps with it through one of its layers."""
    inside = any(mount.device == device and mounts.within(mount.root, path) for device, path in theirs)
    layers = [spot for layer in mount.layers if layer.startswith("/") for spot in mounts.spots(layer, known)]
    return inside or mounts.overlap(layers, theirs)


def _shows(mount: mounts.Mount, gone: Mapping[Identity, MovedFolder], known: list[mounts.Mount]) -> bool:
    """Whether a mount, or one of its layers, is part of a folder that was moved, judged by the folders above it."""
    if not gone:
        return False
    return any(_lies_in(path, gone) for path in (*mount.layers, *mounts.elsewhere(mount, known)))


def _lies_in(path: str, gone: Mapping[Identity, MovedFolder]) -> bool:
    for one in (path, *map(str, Path(path).parents)) if path.startswith("/") else ():
        with suppress(OSError):
            st = os.stat(one)
            if (st.st_dev, st.st_ino) in gone:
                return True
    return False


def _real(folders: Iterable[str]) -> set[str]:
    return {os.path.realpath(one) for one in folders if one.startswith("/")} - {"/"}


def _add(roots: dict[Identity, Root], path: str, *, removed: bool) -> None:
    try:
        st = os.stat(path)
    except OSError:  # gone, or not accessible
        return
    if stat.S_ISDIR(st.st_mode):
        roots.setdefault((st.st_dev, st.st_ino), Root(path, st.st_uid, removed=removed))
