"""Images and snapshots, which a backend keeps beside its sandboxes.

Names come from the engine unchanged: they are hostile text, which every view has to clean.
"""

from __future__ import annotations

from msgspec import Struct


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
    """What a prune would remove, and the bytes that it would free if the backend knows.

    ``spared`` are those that it leaves although no sandbox uses them.
    """

    images: tuple[Image, ...]
    freed_bytes: int | None = None
    spared: tuple[Image, ...] = ()


class Snapshot(Struct, frozen=True):
    """A saved state of a sandbox: ``full`` with its memory, else only its disk.

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
