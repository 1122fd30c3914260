"""Packs files of this machine as a tar, in chunks and constant memory. It reads exactly the files that it checked."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass

from sandbox_console.errors import Conflict, ConsoleError, NotFound
from sandbox_console.hostfs.files import another_owners
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import DEEPEST, Folder, Location
from sandbox_console.model.cancellation import run_to_completion

_CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True)
class PackOptions:
    """How to pack. ``follow`` packs what an operator's link leads to; ``skipped`` is called for what is left out."""

    ground: GuestFolders
    skipped: Callable[[str], None]
    follow: bool = False
    keep_owner: bool = False


async def packed(source: Location, name: str, order: PackOptions) -> AsyncGenerator[bytes, None]:
    """The tar of ``source`` and all below it, called ``name`` (empty: only a folder's contents).

    Raises NotFound, ConsoleError.

    Devices, sockets, FIFOs and files that vanish meanwhile are left out and reported; on the guests' ground also
    mounts, links that would have to be followed, and hard links to other users' files.
    """
    packer = _Packer(order)
    parts = _chunked(packer.tar(source, name))
    try:
        while (chunk := await asyncio.to_thread(next, parts, None)) is not None:
            yield chunk
    finally:
        await run_to_completion(asyncio.to_thread(packer.close))


def _chunked(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces, because a switch to a thread takes more time than a small piece does."""
    held, size = list[bytes](), 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _CHUNK:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


@dataclass(frozen=True)
class _Level:
    """An open folder on the way: its remaining entries, its name in the tar, and its identity."""

    folder: Folder
    names: Iterator[str]
    known: str
    identity: tuple[int, int]


class _Packer:
    """A depth-first walk that keeps a descriptor for each folder on the way."""

    def __init__(self, order: PackOptions) -> None:
        self._order = order
        self._levels: list[_Level] = []

    def close(self) -> None:
        """Close the folders."""
        while self._levels:
            self._levels.pop().folder.close()

    def tar(self, source: Location, name: str) -> Iterator[bytes]:
        """The whole tar."""
        if source.what is None:
            raise NotFound(f"there is no {source.path} here")
        yield from self._member(source.folder, source.name, name)
        while self._levels:
            level = self._levels[-1]
            child = next(level.names, None)
            if child is None:
                self._levels.pop().folder.close()
            else:
                yield from self._member(level.folder, child, f"{level.known}/{child}" if level.known else child)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _member(self, folder: Folder, name: str, known: str) -> Iterator[bytes]:
        path = folder.said(name)
        try:
            st = os.fstat(folder.fd) if name == "." else folder.look(name)
            if stat.S_ISLNK(st.st_mode):
                yield from self._link(folder, name, known, st)
            elif stat.S_ISDIR(st.st_mode):
                yield from self._folder(folder, name, known)
            elif stat.S_ISREG(st.st_mode):
                yield from self._file(folder, name, known)
            else:
                self._order.skipped(f"{path} is neither a file, a folder nor a link")
        except FileNotFoundError:
            self._order.skipped(f"{path} no longer exists")
        except Conflict as error:  # a guest's trap must not hide other files
            self._order.skipped(error.message)
        except OSError as error:
            raise unreadable(path, error) from error

    def _link(self, folder: Folder, name: str, known: str, st: os.stat_result) -> Iterator[bytes]:
        if not self._order.follow:
            info = tarfile.TarInfo(known)
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder.fd)
            yield _header(info, st, self._order)
        elif folder.root is not None:
            self._order.skipped(f"{folder.said(name)} is a link where a sandbox can write: it is not followed")
        else:
            with folder.followed(name, self._order.ground) as there:
                yield from self._member(there.folder, there.name, known)

    def _folder(self, folder: Folder, name: str, known: str) -> Iterator[bytes]:
        inner = folder.again() if name == "." else folder.enter(name, self._order.ground)
        try:
            st = os.fstat(inner.fd)
            identity = st.st_dev, st.st_ino
            if any(level.identity == identity for level in self._levels):  # a followed link that leads back up
                self._order.skipped(f"{inner.path} leads in a circle")
                inner.close()
                return
            if len(self._levels) >= DEEPEST:
                self._order.skipped(f"{inner.path} lies more than {DEEPEST} folders deep")
                inner.close()
                return
            level = _Level(inner, iter(sorted(inner.names())), known, identity)
        except BaseException:
            inner.close()
            raise
        self._levels.append(level)
        if known:
            info = tarfile.TarInfo(known)
            info.type = tarfile.DIRTYPE
            yield _header(info, st, self._order)

    def _file(self, folder: Folder, name: str, known: str) -> Iterator[bytes]:
        """Pack the file that was checked and opened, even if another one has taken its place since."""
        fd = folder.open(name, _READ)
        try:
            st = os.fstat(fd)
            if not stat.S_ISREG(st.st_mode):
                self._order.skipped(f"{folder.said(name)} is neither a file, a folder nor a link")
            elif why := another_owners(st, folder.root):
                self._order.skipped(f"{folder.said(name)} {why}")
            else:
                info = tarfile.TarInfo(known)
                info.size = st.st_size
                yield _header(info, st, self._order)
                yield from _content(fd, folder.said(name), st.st_size)
        finally:
            os.close(fd)


def _header(info: tarfile.TarInfo, st: os.stat_result, order: PackOptions) -> bytes:
    info.mode, info.mtime = stat.S_IMODE(st.st_mode), st.st_mtime
    if order.keep_owner:
        info.uid, info.gid = st.st_uid, st.st_gid
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(fd: int, path: str, size: int) -> Iterator[bytes]:
    """Exactly ``size`` bytes, padded to a block. Raises ConsoleError if the file has become shorter."""
    left = size
    while left:
        chunk = os.read(fd, min(left, _CHUNK))
        if not chunk:
            raise ConsoleError(f"{path} became shorter while it was copied")
        left -= len(chunk)
        yield chunk
    yield bytes(-size % tarfile.BLOCKSIZE)


def unreadable(path: object, error: OSError) -> ConsoleError:
    """Why a path of this machine cannot be read."""
    return ConsoleError(f"{path} cannot be read: {error.strerror}")
