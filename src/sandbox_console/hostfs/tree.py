"""Creates files, folders and links below one open folder, never through a link."""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, Self

from sandbox_console.errors import Conflict
from sandbox_console.hostfs.files import fresh_name, remove, remove_tree
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.partial_files import nursery
from sandbox_console.hostfs.tar_source import TarSource
from sandbox_console.hostfs.walk import Folder

_CHUNK = 64 * 1024
_HOLE = bytes(_CHUNK)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Tree:
    """The inside of a folder. ``fresh`` means that nobody else uses it yet, so files are written in place."""

    def __init__(self, top: Folder, guest_folders: GuestFolders, *, fresh: bool) -> None:
        self._top, self._ground, self._fresh = top, guest_folders, fresh
        self._strict = top.root is not None or guest_folders.reaches_into(top.path)
        self._part: str | None = None
        self._home: Folder | None = None
        self._at, self._at_name = top.again(), ""

    @classmethod
    @contextmanager
    def new(cls, target: Folder, guest_folders: GuestFolders) -> Iterator[Tree]:
        """A folder that appears in ``target`` only with :meth:`keep`. Without that, nothing is left of it."""
        home, part = nursery(target, guest_folders), fresh_name()
        try:
            os.mkdir(part, 0o700, dir_fd=home.fd)
            try:
                with home.enter(part, guest_folders) as top, cls(top, guest_folders, fresh=True) as tree:
                    tree._home, tree._part, tree._goal = home, part, target
                    yield tree
            finally:
                remove_tree(home, part, guest_folders)
        finally:
            home.close()

    _goal: Folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._at.close()
        if self._home is not None and self._part is None:
            self._home.close()

    def keep(self, name: str, mode: int) -> None:
        """Give the complete folder its name. Raises OSError, Conflict if something has appeared there meanwhile."""
        assert self._home is not None  # noqa: S101 - made by new()
        assert self._part is not None  # noqa: S101
        os.chmod(f"/proc/self/fd/{self._top.fd}", _folder_mode(mode))
        try:
            os.rename(self._part, name, src_dir_fd=self._home.fd, dst_dir_fd=self._goal.fd)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST):
                raise Conflict(f"{self._goal.said(name)} was created meanwhile", hint="copy again") from None
            raise

    def folder(self, name: str, mode: int) -> None:
        """Make a folder; an existing one stays as it is. Raises OSError, Conflict."""
        at, last = self._parent(name)
        try:
            os.mkdir(last, _folder_mode(mode), dir_fd=at.fd)
        except FileExistsError:
            if not stat.S_ISDIR(at.look(last).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link, replacing an existing entry. Raises OSError, Conflict."""
        at, last = self._parent(name)
        _put(at, last, lambda new: os.symlink(target, new, dir_fd=at.fd))

    def hard_link(self, name: str, target: str) -> bool:
        """Make a hard link to a file in this tree. Returns True if there is no such file. Raises OSError, Conflict."""
        try:
            source, there = self._opened(os.path.dirname(target)), os.path.basename(target)
        except (FileNotFoundError, NotADirectoryError):
            return True
        with source:
            try:
                if not stat.S_ISREG(source.look(there).st_mode):
                    return True
            except FileNotFoundError:
                return True
            at, last = self._parent(name)
            _put(at, last, lambda new: os.link(
                there, new, src_dir_fd=source.fd, dst_dir_fd=at.fd, follow_symlinks=False))  # fmt: skip
        return False

    def file(self, member: tarfile.TarInfo, source: TarSource, name: str) -> None:
        """Write a file from ``source``. It replaces an existing one when it is complete. Raises OSError, Conflict."""
        at, last = self._parent(name)
        if self._fresh:
            self._write(member, source, at, last)
            return
        home, part = self._nursery(at), fresh_name()
        try:
            self._write(member, source, home, part)
            os.replace(part, last, src_dir_fd=home.fd, dst_dir_fd=at.fd)
        except BaseException:
            remove(home, part)
            raise

    def _nursery(self, at: Folder) -> Folder:
        if at.root is None:
            return at
        if self._home is None:
            self._home = nursery(at, self._ground)
        return self._home

    @staticmethod
    def _write(member: tarfile.TarInfo, source: TarSource, folder: Folder, name: str) -> None:
        try:
            fd = os.open(name, _NEW | os.O_NOFOLLOW, 0o600, dir_fd=folder.fd)
        except FileExistsError:  # twice in the tar; it may have hard links by now, so it is not overwritten
            os.unlink(name, dir_fd=folder.fd)
            fd = os.open(name, _NEW | os.O_NOFOLLOW, 0o600, dir_fd=folder.fd)
        try:
            source.seek(member.offset_data)
            _fill(fd, source, member.size)
            os.fchmod(fd, member.mode & 0o755 | 0o600)
            with suppress(OSError, OverflowError):  # a time that this file system cannot store
                os.utime(fd, (member.mtime, member.mtime))
        finally:
            os.close(fd)

    def _parent(self, name: str) -> tuple[Folder, str]:
        """The open folder of a member, kept for the next one, and its own name."""
        folder, _, last = name.rpartition("/")
        if folder != self._at_name:
            fresh = self._opened(folder)
            self._at.close()
            self._at, self._at_name = fresh, folder
        return self._at, last

    def _opened(self, name: str) -> Folder:
        if not name:
            return self._top.again()
        flags = os.O_PATH | os.O_DIRECTORY
        if not self._strict:
            return Folder(self._top.open(name, flags), self._top.said(name))
        at = self._top.again()
        for part in name.split("/"):  # each step notices where a guest's folder begins
            with at:
                at = at.enter(part, self._ground)
        return at


def _fill(fd: int, source: TarSource, size: int) -> None:
    """Write a file's bytes, with holes for runs of zeros. Raises tarfile.ReadError if the tar ends early."""
    left, hole = size, False
    while left > 0:
        piece = source.some(left)
        if not piece:
            raise tarfile.ReadError("unexpected end of data")
        left -= len(piece)
        hole = _write_with_holes(fd, piece) if size > _CHUNK else _write_all(fd, piece)
    if hole:
        os.ftruncate(fd, size)


def _write_with_holes(fd: int, data: memoryview) -> bool:
    """Write data, except for blocks of zeros; returns whether it ends with one. Few large writes take less CPU."""
    begun, hole = 0, False
    for at in range(0, len(data), _CHUNK):
        block = data[at : at + _CHUNK]
        hole = not block[0] and not block[-1] and bytes(block) == _HOLE[: len(block)]
        if hole:
            _write_all(fd, data[begun:at])
            begun = at + len(block)
            os.lseek(fd, len(block), os.SEEK_CUR)
    _write_all(fd, data[begun:])
    return hole


def _write_all(fd: int, data: memoryview) -> Literal[False]:
    while data:
        data = data[os.write(fd, data) :]
    return False


def _put(at: Folder, name: str, make: Callable[[str], None]) -> None:
    """Make an entry under a temporary name and move it to its place, replacing what is there."""
    part = fresh_name()
    make(part)
    try:
        os.replace(part, name, src_dir_fd=at.fd, dst_dir_fd=at.fd)
    except BaseException:
        remove(at, part)
        raise
    remove(at, part)  # a rename between two names of one file does nothing


def _folder_mode(mode: int) -> int:
    """A mode without write access for others, and with access for the owner."""
    return mode & 0o755 | 0o700
