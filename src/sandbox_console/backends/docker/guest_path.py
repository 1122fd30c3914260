"""Finds where a path in a container really leads, as the engine's archive sees layers and volumes but no tmpfs.

A tmpfs lives in the running container's mount namespace. What the engine reads or writes at such a path lands in the
layer below it, unseen by the container (measured on 20.10 and 28.5), so those paths go through a command inside.
"""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sandbox_console.backends.docker.failures import Refused, about
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.errors import Conflict, NotFound, UsageError
from sandbox_console.model.guest import FileInfo, FileKind

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

_STAT = "X-Docker-Container-Path-Stat"
_KERNEL = ("/proc", "/sys", "/dev")
"""Mounted in every container, and in no layer."""

# Go's os.FileMode, which the engine sends as a number.
_GO_DIRECTORY, _GO_LINK, _GO_OTHER = 1 << 31, 1 << 27, 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21
_GO_SETUID, _GO_SETGID, _GO_STICKY = 1 << 23, 1 << 22, 1 << 20


class GuestPath(Struct, frozen=True):
    """A guest path with its links followed. ``inside``: only a command in the running container can reach it."""

    container: str
    path: str
    inside: bool
    running: bool


def made_up(path: str) -> bool:
    """Whether the kernel generates it. Such a file's size is reported as 0, and a tar of it is empty."""
    return _below(path, frozenset({"/proc", "/sys"}))


def checked(path: str) -> str:
    """A guest path in normal form. Raises UsageError if it is not absolute."""
    if not path.startswith("/") or "\0" in path:
        raise UsageError(f"{path!r} is not an absolute path", hint="write /folder/file")
    return posixpath.normpath(path) if not path.startswith("//") else posixpath.normpath(path[1:])


async def locate(engine: Engine, id: str, path: str, *, last: bool = True) -> GuestPath:
    """Follow the path's links outside of any tmpfs, including its last component unless ``last`` is off.

    Raises NotFound for the container; Conflict if it has to run.
    """
    path = checked(path)
    with about(described(id)):
        data = await engine.call("GET", container_path(id, "json"))
    mounts = _memory_mounts(data)
    running = bool(data["State"]["Running"]) and not data["State"].get("Paused")
    folder, name = (path, "") if last else posixpath.split(path)
    real = posixpath.join(await _followed(engine, id, folder, mounts), name).rstrip("/") or "/"
    inside = _below(real, mounts)
    if inside and not running:
        raise Conflict(
            f"{path} is in memory ({real}), so it is there only while the sandbox runs", hint="start the sandbox first"
        )
    return GuestPath(id, real, inside, running)


async def seen(engine: Engine, id: str, path: str) -> FileInfo | None:
    """A path as the engine's archive sees it; a last link is reported, not followed. None if it does not exist."""
    try:
        headers = await engine.head(container_path(id, "archive"), {"path": path})
    except Refused as error:
        if error.status == 500:
            return None  # a file instead of a folder: the engine answers a HEAD without a reason
        raise
    return _described(headers) if headers is not None else None


async def _followed(engine: Engine, id: str, path: str, mounts: frozenset[str]) -> str:
    """The path with its links followed. The engine reports a link's final target, so a component costs one request."""
    real, rest = "/", [part for part in path.split("/") if part]
    while rest and not _below(real, mounts):
        real = posixpath.join(real, rest.pop(0))
        if _below(real, mounts):
            break
        info = await seen(engine, id, real)
        if info is None:
            break
        if info.kind is FileKind.LINK:
            real = info.target
    return posixpath.join(real, *rest)


def _memory_mounts(data: Mapping[str, Any]) -> frozenset[str]:
    host = data["HostConfig"]
    named = {*(host.get("Tmpfs") or {}), *_KERNEL}
    named |= {str(mount["Destination"]) for mount in data.get("Mounts") or () if mount.get("Type") == "tmpfs"}
    covered = {str(mount["Destination"]) for mount in data.get("Mounts") or () if mount.get("Type") != "tmpfs"}
    return frozenset(posixpath.normpath(path) for path in named - covered)


def _below(path: str, mounts: frozenset[str]) -> bool:
    return any(path == mount or path.startswith(f"{mount}/") for mount in mounts)


def _described(headers: Mapping[str, str]) -> FileInfo:
    try:
        found = json.loads(base64.b64decode(headers[_STAT]))
    except (KeyError, ValueError, binascii.Error) as error:
        raise NotFound("the engine did not say what is at that path") from error
    mode = int(found["mode"])
    return FileInfo(
        name=str(found["name"]),
        kind=_kind(mode),
        size=int(found["size"]),
        mode=_permissions(mode),
        modified_at=_seconds(found.get("mtime")),
        target=str(found.get("linkTarget") or ""),
    )


def _kind(mode: int) -> FileKind:
    if mode & _GO_DIRECTORY:
        return FileKind.DIRECTORY
    if mode & _GO_LINK:
        return FileKind.LINK
    return FileKind.OTHER if mode & _GO_OTHER else FileKind.FILE


def _permissions(mode: int) -> int:
    special = (_GO_SETUID, 0o4000), (_GO_SETGID, 0o2000), (_GO_STICKY, 0o1000)
    return mode & 0o777 | sum(bit for flag, bit in special if mode & flag)


def _seconds(text: str | None) -> float | None:
    from sandbox_console.backends.docker.translate import seconds

    return seconds(text)
