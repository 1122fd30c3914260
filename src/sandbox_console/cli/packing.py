"""Paths of this machine as a tar, in chunks and constant memory."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

from sandbox_console.errors import ConsoleError, NotFound

_CHUNK = 256 * 1024


async def packed(
    source: Path, name: str, *, follow: bool, keep_owner: bool, skipped: Callable[[str], None]
) -> AsyncGenerator[bytes, None]:
    """``source`` and all below it, called ``name`` (empty: just what is in a folder). Raises NotFound, ConsoleError.

    ``follow``: a link is what it leads to, else it stays a link. ``skipped`` is told of what a tar cannot carry
    between machines: devices, sockets and FIFOs.
    """
    for path, member in await asyncio.to_thread(list, _members(source, name, follow=follow, skipped=skipped)):
        info = await asyncio.to_thread(_info, path, member, follow=follow, keep_owner=keep_owner)
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if info.isreg():
            async for chunk in _content(path, info.size):
                yield chunk
    yield bytes(2 * tarfile.BLOCKSIZE)


def _members(source: Path, name: str, *, follow: bool, skipped: Callable[[str], None]) -> Iterator[tuple[Path, str]]:
    """Each path with its name in the tar, folders before what is in them."""
    todo, seen = [(source, name)], set[tuple[int, int]]()
    while todo:
        path, member = todo.pop()
        found = _look(path, follow=follow)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            skipped(f"{path} is neither a file, a folder nor a link")
            continue
        if member:
            yield path, member
        if stat.S_ISDIR(found.st_mode):
            if (found.st_dev, found.st_ino) in seen:  # a link that leads back up, followed
                skipped(f"{path} leads in a circle")
                continue
            seen.add((found.st_dev, found.st_ino))
            todo += [
                (one, f"{member}/{one.name}" if member else one.name) for one in sorted(_below(path), reverse=True)
            ]


def _look(path: Path, *, follow: bool) -> os.stat_result:
    try:
        return path.stat() if follow else path.lstat()
    except FileNotFoundError:
        raise NotFound(f"there is no {path} here") from None
    except OSError as error:
        raise unreadable(path, error) from error


def _below(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError as error:
        raise unreadable(path, error) from error


def _info(path: Path, name: str, *, follow: bool, keep_owner: bool) -> tarfile.TarInfo:
    found = _look(path, follow=follow)
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(found.st_mode), found.st_mtime
    if keep_owner:
        info.uid, info.gid = found.st_uid, found.st_gid
    if stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.fspath(path.readlink())
    else:
        info.size = found.st_size
    return info


async def _content(path: Path, size: int) -> AsyncGenerator[bytes, None]:
    """Exactly ``size`` bytes, padded to a block. Raises ConsoleError where the file became shorter."""
    try:
        with await asyncio.to_thread(path.open, "rb") as file:
            left = size
            while left:
                chunk = await asyncio.to_thread(file.read, min(left, _CHUNK))
                if not chunk:
                    raise ConsoleError(f"{path} became shorter while it was copied")
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise unreadable(path, error) from error
    yield bytes(-size % tarfile.BLOCKSIZE)


def unreadable(path: Path, error: OSError) -> ConsoleError:
    """Why a path of this machine cannot be read."""
    return ConsoleError(f"{path} cannot be read: {error.strerror}")
