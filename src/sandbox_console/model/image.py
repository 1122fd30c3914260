"""Images and snapshots, which a backend stores beside its sandboxes.

Names come from the engine unchanged: they are hostile text, which every view has to clean.
"""

from __future__ import annotations

from msgspec import Struct


class Image(Struct, frozen=True):
    """An image that a backend has. ``names`` are its tags; ``used_by`` counts the sandboxes made from it.

    ``platforms`` are those of it that this host has, such as ``linux/arm64``, which may be fewer than its registry has;
    empty if not known. ``emulated`` means that none of them is the host's own.

    ``needed`` says what the console itself needs the image for, if it does, or how many of a pool are ready; a prune
    spares such an image.
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
    platforms: tuple[str, ...] = ()
    emulated: bool = False


class Prunable(Struct, frozen=True):
    """What a prune would remove, and how many bytes it would free, if the backend knows.

    ``spared`` are the images that it keeps although no sandbox uses them.
    """

    images: tuple[Image, ...]
    freed_bytes: int | None = None
    spared: tuple[Image, ...] = ()


class Snapshot(Struct, frozen=True):
    """A saved state of a sandbox: its memory and disk if ``full``, else only its disk.

    A sandbox made from it is given the secrets named in ``secrets`` and the folder ``workspace``.
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


def tagged(name: str) -> str:
    """A name with its tag, in its shortest form, so that two names of one image are equal. A digest is left out."""
    rest = name.partition("@")[0]
    for prefix in ("index.docker.io/", "docker.io/", "localhost/", "library/"):
        rest = rest.removeprefix(prefix)
    return rest if ":" in rest.rpartition("/")[2] else f"{rest}:latest"
