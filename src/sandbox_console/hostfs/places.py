"""Which folders of this machine guests can change."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_console.hostfs import mounts

Identity = tuple[int, int]


@dataclass(frozen=True)
class Root:
    """A folder that guests write: as it is called here, and who owns it."""

    path: str
    owner: int


@dataclass(frozen=True)
class Ground:
    """The guests' ground: every folder that one of them can write, and each other way to the same.

    ``private`` is a folder that no guest reaches, for what is not whole yet.
    """

    roots: dict[Identity, Root] = field(default_factory=dict)
    private: Path | None = None

    @classmethod
    def of(cls, folders: Iterable[str], private: Path | None = None) -> Ground:
        """Look the folders up: what is bind-mounted from inside them, or layered over them, is theirs as well."""
        roots: dict[Identity, Root] = {}
        real = {os.path.realpath(one) for one in folders if one.startswith("/")} - {"/"}
        for path in sorted(real):
            _add(roots, path)
        if roots:
            known = mounts.read()
            theirs = [spot for path in real for spot in mounts.spots(path, known)]
            for mount in known:
                if mount.point not in real and _exposes(mount, theirs, known):
                    _add(roots, mount.point)
        return cls(roots, private)

    def holds(self, found: os.stat_result) -> Root | None:
        """The root that this folder is, if it is one."""
        return self.roots.get((found.st_dev, found.st_ino))

    def reaches_into(self, folder: str) -> bool:
        """Whether some of it lies below a folder."""
        return any(mounts.within(root.path, folder) for root in self.roots.values())


NOBODYS = Ground()
"""Where nothing is a guest's."""

AROUND: ContextVar[Ground] = ContextVar("ground", default=NOBODYS)
"""The ground of the task that runs, for who is too far down to be handed it: a secret's file."""


def _exposes(mount: mounts.Mount, theirs: list[mounts.Spot], known: list[mounts.Mount]) -> bool:
    """Whether all of a mount is a part of the guests' ground, or one of its layers has to do with it."""
    inside = any(mount.device == device and mounts.within(mount.root, path) for device, path in theirs)
    layers = [spot for layer in mount.layers if layer.startswith("/") for spot in mounts.spots(layer, known)]
    return inside or mounts.overlap(layers, theirs)


def _add(roots: dict[Identity, Root], path: str) -> None:
    try:
        found = os.stat(path)
    except OSError:  # gone, or not ours to see
        return
    if stat.S_ISDIR(found.st_mode):
        roots.setdefault((found.st_dev, found.st_ino), Root(path, found.st_uid))
