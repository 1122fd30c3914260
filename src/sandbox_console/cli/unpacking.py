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

Target = Callable[[tarfile.TarInfo], Path]
"""Where the first member goes: a sandbox's word on what it is comes with it."""


class Unpacker:
    """Takes the chunks of a tar; a thread unpacks them. ``skipped`` is told of each member that is not taken."""

    def __init__(self, target: Target, skipped: Callable[[str], None]) -> None:
        self._target, self._skipped = target, skipped
        reader, self._writer = os.pipe()
        self._task = asyncio.ensure_future(asyncio.to_thread(self._unpack, reader))
        self._made: Path | None = None
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
                self._unpack_all(pipe)
            except tarfile.ReadError as error:
                raise BackendError(f"the copy is not whole: {error}") from error
            except OSError as error:
                raise ConsoleError(f"{error.filename or 'the copy'} cannot be written: {error.strerror}") from error

    def _unpack_all(self, pipe: BinaryIO) -> None:
        with tarfile.open(fileobj=pipe, mode="r|", bufsize=1 << 20, errorlevel=1) as tar:
            tar.extraction_filter = lambda member, _path: member  # _take judges
            first = tar.next()
            if first is None:
                raise BackendError("the copy is empty")
            target = self._target(first)
            if first.isdir():
                self._folder(tar, first, target)
            else:
                self._take(tar, first, target.name, target.parent, len(PurePosixPath(first.name).parts))
        while pipe.read(1 << 20):
            pass  # padding; the other side must not meet a closed pipe

    def _folder(self, tar: tarfile.TarFile, first: tarfile.TarInfo, target: Path) -> None:
        """A folder that is new here appears whole; one that is there is added to."""
        depth = len(PurePosixPath(first.name).parts)
        if target.exists():
            self._members(tar, target, depth)
            return
        fresh = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
        fresh.mkdir()
        try:
            self._members(tar, fresh, depth)
            fresh.rename(target)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def _members(self, tar: tarfile.TarFile, folder: Path, depth: int) -> None:
        for member in tar:
            tar.members.clear()  # type: ignore[attr-defined] # it would keep every member, however many there are
            parts = PurePosixPath(member.name).parts[depth:]
            if not parts and member.isdir():  # the folder itself, which comes first
                continue
            if not parts or ".." in parts:
                self._skipped(f"{member.name!r} is not below what was asked for")
                continue
            self._take(tar, member, "/".join(parts), folder, depth)

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, folder: Path, depth: int) -> None:
        """One member, if it may be taken."""
        link = member.linkname
        if member.islnk():  # its target is named from the root of the tar
            link = "/".join(PurePosixPath(link).parts[depth:])
        safe = copy.copy(member)
        safe.name, safe.linkname = name, link
        if why := _refusal(safe, folder):
            self._skipped(f"{member.name!r} {why}")
            return
        safe.uid, safe.gid, safe.uname, safe.gname = os.geteuid(), os.getegid(), "", ""
        safe.mode = _mode(safe)
        if safe.isreg():
            self._file(tar, safe, folder)
        else:
            tar.extract(safe, folder)
        self.files += 1

    @staticmethod
    def _file(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
        place = folder / member.name
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")
        part = copy.copy(member)
        part.name = str(fresh.relative_to(folder))
        try:
            tar.extract(part, folder)
            fresh.replace(place)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise


def _refusal(member: tarfile.TarInfo, folder: Path) -> str:
    """Why a member is not taken; empty where it is."""
    if member.issparse() or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "is neither a file, a folder nor a link"
    if not _below(folder, Path(member.name).parent if member.issym() or member.isreg() else Path(member.name)):
        return "would be written outside, by a link that is there"
    target = Path(member.linkname)
    if (member.issym() or member.islnk()) and target.is_absolute():
        return f"is a link to the absolute path {member.linkname!r}"
    if member.issym() and not _below(folder, Path(member.name).parent / target):
        return f"is a link that leads out, to {member.linkname!r}"
    if member.islnk() and not _below(folder, target):
        return f"is a hard link to what is outside, {member.linkname!r}"
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
