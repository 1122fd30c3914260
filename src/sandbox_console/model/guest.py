"""What is inside a sandbox: its files, processes, changed paths and events.

Names and paths come from the guest: they are hostile text, which every view has to clean.
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
    target: str = ""  # where a symbolic link points


class GuestProcess(Struct, frozen=True):
    """One process of a sandbox, with its pid inside the sandbox if that can be known, else its pid on the host."""

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


class GuestEvent(Struct, frozen=True):
    """One event that the backend reports for a sandbox: ``what`` is its word (start, die, oom, exec_create)."""

    at: float
    what: str
    detail: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
