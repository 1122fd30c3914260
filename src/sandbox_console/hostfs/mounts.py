"""Finds out what a folder really is, wherever it is mounted: a file system, a path in it, and its layers.

The format is that of proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

_LAYERS = ("lowerdir", "upperdir", "workdir")
_DEEPEST = 8
"""How deep layers of layers are searched. overlayfs itself stacks 2 deep (FILESYSTEM_MAX_STACK_DEPTH)."""

Spot = tuple[str, str]
"""A file system as ``major:minor``, and a path in it."""


class Mount(Struct, frozen=True):
    """One mount: where it is, which part of which file system it shows, and an overlay's layers."""

    device: str
    root: str
    point: str
    layers: tuple[str, ...]


def read() -> list[Mount]:
    """The mounts of this process; later ones cover earlier ones. Empty if there is no /proc."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [_mount(line) for line in lines]


def _mount(line: str) -> Mount:
    fields, _, rest = line.partition(" - ")
    words, (kind, _, options) = fields.split(" "), [*rest.split(" "), "", "", ""][:3]
    layers: list[str] = []
    if kind in ("overlay", "fuse.fuse-overlayfs", "aufs"):
        for option in options.split(","):
            key, _, value = option.partition("=")
            if key.rstrip("+") in _LAYERS:
                layers += _layers(_plain(value), many=key == "lowerdir")
    return Mount(words[2], _plain(words[3]), _plain(words[4]), tuple(layers))


def _layers(value: str, *, many: bool) -> list[str]:
    r"""The folders of an option, separated by colons; a colon in a name is ``\:`` (overlayfs.rst)."""
    found = re.findall(r"(?:\\.|[^:])+", value) if many else [value]
    return [re.sub(r"\\(.)", r"\1", one) for one in found if one]


def _plain(text: str) -> str:
    r"""The text without octal escapes: a space is ``\040``."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def spots(folder: str, mounts: Iterable[Mount], *, deep: int = 0) -> Iterator[Spot]:
    """Every place that a folder of this machine includes: its own, those of mounts below it, and their layers."""
    known = list(mounts)
    real = os.path.realpath(folder)
    covering = [mount for mount in known if within(real, mount.point)]
    if covering:
        top = max(reversed(covering), key=lambda mount: len(mount.point))
        yield from _spots_at(top, posixpath.relpath(real, top.point), known, deep)
    for mount in known:
        if mount.point != real and within(mount.point, real):
            yield from _spots_at(mount, ".", known, deep)


def _spots_at(mount: Mount, below: str, known: list[Mount], deep: int) -> Iterator[Spot]:
    yield mount.device, posixpath.normpath(posixpath.join(mount.root, below))
    if deep < _DEEPEST:
        for layer in mount.layers:
            if layer.startswith("/"):
                yield from spots(posixpath.join(layer, below), known, deep=deep + 1)


def elsewhere(mount: Mount, known: Iterable[Mount]) -> Iterator[str]:
    """Other paths of the folder that a mount shows, if it shows part of a file system."""
    for one in known:
        if one.device == mount.device and one.root != mount.root and within(mount.root, one.root):
            path = posixpath.normpath(posixpath.join(one.point, posixpath.relpath(mount.root, one.root)))
            with suppress(OSError):
                if os.path.samefile(path, mount.point):  # otherwise something else is mounted over it
                    yield path


def overlap(one: Iterable[Spot], other: Iterable[Spot]) -> bool:
    """Whether a place of the first equals, contains or is inside a place of the second."""
    others = list(other)
    return any(
        device == there and (within(path, place) or within(place, path))
        for device, path in one
        for there, place in others
    )
