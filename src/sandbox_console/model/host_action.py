"""Actions on a backend's host rather than on a sandbox: its images and its snapshots."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class PullImage(Struct, frozen=True):
    """Pull an image from its registry."""

    verb: ClassVar[str] = "pull"
    backend: str
    host: str
    image: str


class RemoveImage(Struct, frozen=True):
    """Remove an image, or one of its names."""

    verb: ClassVar[str] = "remove-image"
    backend: str
    host: str
    image: str
    force: bool = False


class PruneImages(Struct, frozen=True):
    """Remove the images without a name; with ``unused``, every image that no sandbox uses."""

    verb: ClassVar[str] = "prune-images"
    backend: str
    host: str
    unused: bool = False


class LoadImage(Struct, frozen=True):
    """Load an image from an archive, which is the action's input."""

    verb: ClassVar[str] = "load-image"
    backend: str
    host: str


class SaveImage(Struct, frozen=True):
    """Write an image as an archive to the action's output."""

    verb: ClassVar[str] = "save-image"
    backend: str
    host: str
    image: str


class RestoreSnapshot(Struct, frozen=True):
    """Make a sandbox called ``name`` from a snapshot."""

    verb: ClassVar[str] = "restore"
    backend: str
    host: str
    snapshot: str
    name: str


class RemoveSnapshot(Struct, frozen=True):
    """Remove a snapshot."""

    verb: ClassVar[str] = "remove-snapshot"
    backend: str
    host: str
    snapshot: str


HostAction = PullImage | RemoveImage | PruneImages | LoadImage | SaveImage | RestoreSnapshot | RemoveSnapshot
