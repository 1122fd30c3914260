"""A container's files: by the engine's archive endpoints, or by tar inside where only the container sees them.

A directory's tar has what its layers and volumes hold; a tmpfs below it is not in it (see ``place``).
"""

from __future__ import annotations

import posixpath
import shlex
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import structs

from sandbox_console.backends.docker import guest_files
from sandbox_console.backends.docker.bulk_answer import blocks
from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.guest_path import Place, locate, made_up, seen
from sandbox_console.backends.docker.paths import container_path
from sandbox_console.backends.tarscan import Member, TarScanner, guarded
from sandbox_console.errors import BackendError, Conflict, ConsoleError, NotFound, UsageError
from sandbox_console.model.inside import FileInfo, FileKind

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

_KINDS = {tarfile.DIRTYPE: FileKind.DIRECTORY, tarfile.SYMTYPE: FileKind.LINK}
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE)


async def stat(engine: Engine, id: str, path: str) -> FileInfo:
    """One path, links followed. Raises NotFound."""
    place = await locate(engine, id, path)
    found = await (guest_files.stat(engine, place) if place.inside else seen(engine, id, place.path))
    if found is None:
        raise _missing(path)
    return structs.replace(found, name=posixpath.basename(path.rstrip("/")) or "/")


async def list_dir(engine: Engine, id: str, path: str) -> Sequence[FileInfo]:
    """A directory's entries by name. Raises NotFound, Conflict where it is none.

    A running container is asked by ``find`` and ``stat`` inside; without them, without permission, or where it does
    not run, the engine's tar of the directory is read through, which costs the size of all that is below it.
    """
    place = await locate(engine, id, path)
    if not place.inside:
        await _need_directory(engine, place, path)
    found = await guest_files.list_dir(engine, place) if place.running else None
    if found is None:
        if place.inside:
            raise BackendError(f"{path} cannot be listed: it is in memory, and the image has no find and stat")
        found = await _listed(engine, place)
    return sorted(found, key=lambda info: info.name)


async def download(engine: Engine, id: str, path: str) -> AsyncGenerator[bytes, None]:
    """A tar of the path, a link as such, in blocks as they fill. Raises NotFound; Conflict in /proc and /sys."""
    place = await locate(engine, id, path, last=False)
    if made_up(place.path):
        raise Conflict(
            f"{path} is made by the kernel as it is read, so a copy of it would be empty",
            hint=f"read it inside: sandbox-console exec NAME -- cat {shlex.quote(path)}",
        )
    if place.inside:
        async with aclosing(guest_files.download(engine, place)) as chunks:
            async for block in blocks(chunks):
                yield block
        return
    try:
        async with engine.bulk(container_path(id, "archive"), {"path": place.path}) as archive:
            async for block in blocks(archive):
                yield block
    except Refused as error:
        raise _missing(path) if error.status in (404, 500) else error from error


async def upload(engine: Engine, id: str, path: str, archive: AsyncIterator[bytes]) -> None:
    """Unpack a tar into a directory; owners and modes are the tar's. Raises NotFound, Conflict, UsageError."""
    place = await locate(engine, id, path)
    if place.inside:
        await guest_files.upload(engine, place, guarded(archive))
        return
    await _need_directory(engine, place, path)
    params: dict[str, str | int] = {"path": place.path, "noOverwriteDirNonDir": 1}
    try:
        async with engine.stream(
            container_path(id, "archive"), params, method="PUT", source=guarded(archive),
            headers={"Content-Type": "application/x-tar"},
        ) as answer:  # fmt: skip
            async for _ in answer:
                pass
    except Refused as error:
        raise _not_unpacked(path, error) from error


async def _need_directory(engine: Engine, place: Place, path: str) -> None:
    found = await seen(engine, place.container, place.path)
    if found is None:
        raise _missing(path)
    if found.kind is not FileKind.DIRECTORY:
        raise Conflict(f"{path} is not a directory")


async def _listed(engine: Engine, place: Place) -> list[FileInfo]:
    scanner, found, top = TarScanner(), list[FileInfo](), -1
    async with engine.stream(container_path(place.container, "archive"), {"path": f"{place.path}/."}) as archive:
        async for chunk in archive:
            for member in scanner.feed(chunk):
                parts = [part for part in member.name.split("/") if part not in ("", ".")]
                top = len(parts) if top < 0 else top  # the directory itself comes first
                if len(parts) == top + 1:
                    found.append(_info(member, parts[-1]))
    return found


def _info(member: Member, name: str) -> FileInfo:
    kind = _KINDS.get(member.kind, FileKind.FILE if member.kind in _FILES else FileKind.OTHER)
    return FileInfo(
        name, kind, member.size, member.mode & 0o7777, member.uid, member.gid, member.mtime,
        member.target if kind is FileKind.LINK else "",
    )  # fmt: skip


def _missing(path: str) -> NotFound:
    return NotFound(f"there is no {path} in the sandbox", hint="list its folder to see what there is")


def _not_unpacked(path: str, error: Refused) -> ConsoleError:
    if error.status == 404:
        return _missing(path)
    if "invalid symlink" in error.message or "invalid hardlink" in error.message:
        return UsageError(f"the engine refuses a link of the archive that points out of {path}: {error.message}")
    if error.status == 403 or "read-only" in error.message:
        return Conflict(f"{path} cannot be written: {error.message}", hint="its root is read-only; /workspace is not")
    return error
