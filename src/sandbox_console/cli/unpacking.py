"""A tar that a sandbox made, unpacked on this machine: a hostile one writes nothing outside its target.

The rules are those of Python's ``tarfile.data_filter`` (PEP 706), which early 3.11 lacks: no absolute path, no way up,
no link out, no device, no setuid, no owner. A file is written beside its place and moved there when it is whole.
"""

from __future__ import annotations

import asyncio
import copy
import os
import secrets
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from sandbox_console.errors import BackendError, ConsoleError

_END = 2 * tarfile.BLOCKSIZE
Target = Callable[[tarfile.TarInfo], Path]
"""Where the first member goes: a sandbox's word on what it is comes with it."""


class Unpacker:
    """Takes the chunks of a tar; a thread unpacks them. ``skipped`` is told of each member that is not taken."""

    def __init__(self, target: Target, skipped: Callable[[str], None]) -> None:
        self._target, self._skipped = target, skipped
        reader, self._writer = os.pipe()
        self._task = asyncio.ensure_future(asyncio.to_thread(self._unpack, reader))
        self._top: tuple[str, ...] = ()
        self.files = 0

    async def give(self, chunk: bytes) -> None:
        """Pass bytes on. Raises what the unpacking met."""
        try:
            await asyncio.to_thread(_write, self._writer, chunk)
        except BrokenPipeError:
            await self._task
            raise ConsoleError("the copy ended early") from None

    async def finish(self) -> None:
        """The tar is whole. Raises what the unpacking met, and takes a half copy away."""
        self._close()
        await self._task

    async def abandon(self) -> None:
        """The tar ends here, whatever is missing: a half copy is taken away."""
        self._close()
        await asyncio.gather(self._task, return_exceptions=True)

    def _close(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def _unpack(self, reader: int) -> None:
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            try:
                self._unpack_all(_Tail(pipe))
            except tarfile.TarError as error:
                raise BackendError(f"the copy is not whole: {error}") from error
            except OSError as error:
                raise ConsoleError(f"{error.filename or 'the copy'} cannot be written: {error.strerror}") from error

    def _unpack_all(self, pipe: _Tail) -> None:
        with tarfile.open(fileobj=pipe, mode="r|", bufsize=1 << 20, errorlevel=1) as tar:  # type: ignore[call-overload]
            tar.extraction_filter = lambda member, _path: member  # _take judges
            first = tar.next()
            if first is None:
                raise BackendError("the copy is empty")
            target, self._top = self._target(first), PurePosixPath(first.name).parts
            if first.isdir():
                self._folder(tar, pipe, target)
            else:
                self._take(tar, first, target.name, target.parent)
                pipe.need_end()

    def _folder(self, tar: tarfile.TarFile, pipe: _Tail, target: Path) -> None:
        """A folder that is new here appears whole; one that is there is added to."""
        if target.exists():
            self._members(tar, target)
            pipe.need_end()
            return
        fresh = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
        fresh.mkdir()
        try:
            self._members(tar, fresh)
            pipe.need_end()
            fresh.rename(target)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def _members(self, tar: tarfile.TarFile, folder: Path) -> None:
        for member in tar:
            tar.members.clear()  # type: ignore[attr-defined] # it would keep every member, however many there are
            parts = PurePosixPath(member.name).parts
            below = parts[len(self._top) :]
            if parts[: len(self._top)] != self._top or ".." in below or not (below or member.isdir()):
                self._skipped(f"{member.name!r} is not below what was asked for")
            elif below:  # else it is the folder itself, which comes first
                self._take(tar, member, "/".join(below), folder)

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, folder: Path) -> None:
        """One member, if it may be taken."""
        safe = copy.copy(member)
        safe.name = name
        if member.islnk():  # its target is named from the root of the tar
            safe.linkname = "/".join(PurePosixPath(member.linkname).parts[len(self._top) :])
        if why := _refusal(safe, folder):
            self._skipped(f"{member.name!r} {why}")
            return
        safe.uid, safe.gid, safe.uname, safe.gname = os.geteuid(), os.getegid(), "", ""
        safe.mode = _mode(safe)
        if safe.isreg():
            self._file(tar, safe, folder)
        elif safe.islnk():
            (folder / name).unlink(missing_ok=True)
            (folder / name).hardlink_to(folder / safe.linkname)
        else:
            tar.extract(safe, folder)
        self.files += 1

    @staticmethod
    def _file(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
        place = folder / member.name
        fresh = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")
        part = copy.copy(member)
        part.name = str(fresh.relative_to(folder))
        try:
            tar.extract(part, folder)
            fresh.replace(place)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise


class _Tail:
    """A pipe whose last bytes are known: a tar ends with two blocks of zeros, and one that was cut does not."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe, self._last = pipe, b""

    def read(self, size: int) -> bytes:
        """What there is."""
        data = self._pipe.read(size)
        self._last = (self._last + data[-_END:])[-_END:]
        return data

    def need_end(self) -> None:
        """Read to the end, for padding may follow. Raises BackendError where it is not a tar's."""
        while self.read(1 << 20):
            pass
        if self._last != bytes(_END):
            raise BackendError("the copy is not whole: its end is missing")


def _refusal(member: tarfile.TarInfo, folder: Path) -> str:
    """Why a member is not taken; empty where it is."""
    if member.issparse() or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "is neither a file, a folder nor a link"
    if not _below(folder, Path(member.name).parent if member.issym() or member.isreg() else Path(member.name)):
        return "would be written outside, by a link that is there"
    target, parent = Path(member.linkname), (folder / member.name).parent
    if not parent.is_dir():
        return "has no folder to be in"
    if (member.issym() or member.islnk()) and target.is_absolute():
        return f"is a link to the absolute path {member.linkname!r}"
    if member.issym() and not _below(folder, Path(member.name).parent / target):
        return f"is a link that leads out, to {member.linkname!r}"
    if member.islnk() and not (_below(folder, target) and (folder / target).is_file()):
        return f"is a hard link to what is not in the copy, {member.linkname!r}"
    return ""


def _below(folder: Path, name: Path) -> bool:
    """Whether a path is in a folder, links followed."""
    return (folder / name).resolve().is_relative_to(folder.resolve())


def _mode(member: tarfile.TarInfo) -> int:
    """No setuid, no sticky bit, nothing that others may write; what we make we can read and change."""
    return member.mode & 0o755 | (0o700 if member.isdir() else 0o600)


def _write(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]
