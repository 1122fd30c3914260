"""What is inside a sandbox, or on a backend beside its sandboxes: files, processes, images, snapshots.

Names and paths are the guest's: hostile text, cleaned by whoever shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field


class FileKind(StrEnum):
    """What a directory entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"  # a device, a socket, a FIFO


class FileInfo(Struct, frozen=True):
    """One directory entry. ``mode`` is the permission bits, ``modified_at`` seconds since the epoch."""

    name: str
    kind: FileKind
    size: int = 0
    mode: int = 0
    uid: int | None = None
    gid: int | None = None
    modified_at: float | None = None
    target: str = ""  # where a link points


class GuestProcess(Struct, frozen=True):
    """One process of a sandbox, by its pid inside where that can be known, else by the host's."""

    pid: int
    parent: int | None = None
    user: str = ""
    cpu_s: float | None = None
    memory_bytes: int | None = None
    state: str = ""
    command: str = ""


class PathChange(Struct, frozen=True):
    """A path that differs from the image: ``added``, ``changed`` or ``deleted``."""

    path: str
    how: str


class Happening(Struct, frozen=True):
    """One thing that the backend says happened to a sandbox: ``what`` is its word (start, die, oom, exec_create)."""

    at: float
    what: str
    detail: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


class Image(Struct, frozen=True):
    """An image that a backend has. ``names`` are its tags; ``used_by`` counts the sandboxes made from it.

    ``needed`` says what the console itself needs it for, which a prune spares; empty where it does not.
    """

    backend: str
    host: str
    id: str
    names: tuple[str, ...] = ()
    digest: str = ""
    size_bytes: int | None = None
    created_at: float | None = None
    used_by: int | None = None
    needed: str = ""


class Prunable(Struct, frozen=True):
    """What a prune would remove, and the bytes that it would free where the backend can tell.

    ``spared`` are those that it leaves although no sandbox uses them.
    """

    images: tuple[Image, ...]
    freed_bytes: int | None = None
    spared: tuple[Image, ...] = ()


class Snapshot(Struct, frozen=True):
    """A saved state of a sandbox: ``full`` with its memory, else its disk alone.

    ``secrets`` are the names of those that a sandbox made of it is given, ``workspace`` the folder.
    """

    backend: str
    host: str
    name: str
    of: str = ""
    created_at: float | None = None
    size_bytes: int | None = None
    full: bool = False
    secrets: tuple[str, ...] = ()
    workspace: str = ""
