"""Reads and writes single files of this machine. It reads exactly the file that it checked, and writes a new one."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from sandbox_console.errors import Conflict
from sandbox_console.hostfs.guest_writable import GuestFolders, Root
from sandbox_console.hostfs.walk import Folder, Location, find

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OLD = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(folder: Folder, name: str) -> int:
    """Open a regular file for reading. It never waits for a FIFO's writer. Raises OSError, Conflict."""
    fd = folder.open(name, _READ)
    try:
        _need_file(os.fstat(fd), folder, name)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _need_file(st: os.stat_result, folder: Folder, name: str) -> None:
    if not stat.S_ISREG(st.st_mode):
        raise OSError(errno.EINVAL, "it is not a file", folder.said(name))
    if why := another_owners(st, folder.root):
        raise Conflict(f"{folder.said(name)} {why}", hint="copy it to a file of its own")


def another_owners(st: os.stat_result, root: Root | None) -> str:
    """Why a guest's file is not read: it may be a hard link that a guest made to another user's file.

    Such links can be made by a guest that is root in its sandbox, or on a kernel without ``fs.protected_hardlinks``.
    Empty if nothing is wrong with the file.
    """
    if root is None or st.st_nlink < 2 or st.st_uid == root.owner:
        return ""
    return "has a second name and another owner than the folder that a sandbox writes"


def read_small(path: str | Path, guest_folders: GuestFolders, limit: int) -> bytes:
    """Read a file of at most ``limit`` bytes, or a pipe from the shell's ``<(...)``. Raises OSError, Conflict.

    Raises OSError with EFBIG for a longer file. In a folder that a guest can write, FIFOs, devices and links are
    refused.
    """
    with find(path, guest_folders) as found, os.fdopen(open_found(found), "rb") as file:
        data = _all(file, limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is longer than {limit >> 10} KiB", os.fspath(path))
    return data


def opened(path: str | Path, guest_folders: GuestFolders) -> BinaryIO:
    """Open a file, or an operator's pipe, for reading. Raises OSError, Conflict."""
    with find(path, guest_folders) as found:
        return os.fdopen(open_found(found), "rb")


def written(path: str | Path, guest_folders: GuestFolders) -> BinaryIO:
    """Open a file for writing. It is created, or emptied if it exists. Raises OSError, Conflict.

    In a folder that a guest can write, it must be a regular file with a single name; elsewhere it may also be a pipe or
    a device.
    """
    with find(path, guest_folders) as found:
        if found.folder.root is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC
            return os.fdopen(os.open(found.name, flags, 0o666, dir_fd=found.folder.fd), "wb")
        file = os.fdopen(found.folder.open(found.name, _OLD, 0o666), "wb")
        try:
            _need_file(os.fstat(file.fileno()), found.folder, found.name)
            file.truncate(0)  # only after the check: it may be a hard link to another user's file
        except BaseException:
            file.close()
            raise
        return file


def make_folder(path: str | Path, guest_folders: GuestFolders, mode: int = 0o777) -> None:
    """Make a folder and its missing parents. Raises OSError, Conflict."""
    try:
        found = find(path, guest_folders)
    except FileNotFoundError:
        make_folder(Path(path).parent, guest_folders, mode)
        found = find(path, guest_folders)
    with found:
        if found.what is None:
            os.mkdir(found.name, mode, dir_fd=found.folder.fd)
        elif not found.is_folder:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), found.path)


def _all(file: BinaryIO, limit: int) -> bytes:
    os.set_blocking(file.fileno(), True)
    return file.read(limit)


def open_found(found: Location) -> int:
    """Open a file, or an operator's pipe, for reading. Raises OSError, Conflict."""
    if found.what is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), found.path)
    if found.folder.root is None and not stat.S_ISREG(found.what.st_mode):
        return _stream(found)
    return open_regular(found.folder, found.name)


def _stream(found: Location) -> int:
    """Open a pipe or a terminal that the operator named. Endless devices such as /dev/zero are cut off."""
    fd = os.open(found.name, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=found.folder.fd)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), found.path)
    return fd


class NewFile:
    """A new file, open for writing, with mode 0600 by default. ``drop`` removes it again."""

    def __init__(self, path: str | Path, guest_folders: GuestFolders, mode: int = 0o600) -> None:
        """Create the file. Raises FileExistsError if the path exists, even as a link; OSError, Conflict."""
        found = find(path, guest_folders, follow=False)
        self._folder, self._name = found.folder, found.name
        try:
            self.file = os.fdopen(self._folder.open(self._name, _NEW, mode), "wb")
        except BaseException:
            self._folder.close()
            raise
        st = os.fstat(self.file.fileno())
        self._identity = st.st_dev, st.st_ino

    def keep(self, replace: str = "") -> None:
        """Keep the complete file. If ``replace`` is given, it gets that name in its folder. Raises OSError."""
        self.file.close()
        if replace:
            os.replace(self._name, replace, src_dir_fd=self._folder.fd, dst_dir_fd=self._folder.fd)
        self._folder.close()

    def drop(self) -> None:
        """Remove the file, if it is still the one that was created. Safe after ``keep``."""
        if self._folder.fd < 0:
            return
        with suppress(OSError):  # the disk is full, so its buffer cannot be written
            self.file.close()
        remove(self._folder, self._name, lambda st: (st.st_dev, st.st_ino) == self._identity)
        self._folder.close()


def remove(folder: Folder, name: str, only: Callable[[os.stat_result], bool] = lambda _: True) -> None:
    """Unlink an entry, if it exists and is the expected file."""
    try:
        if only(folder.look(name)):
            os.unlink(name, dir_fd=folder.fd)
    except OSError:
        return


def fresh_name() -> str:
    """A random file name that nobody can predict."""
    return f".sandbox-console-{secrets.token_hex(8)}.part"


def remove_tree(folder: Folder, name: str, guest_folders: GuestFolders) -> None:
    """Remove an entry and everything below it, without following links. What cannot be removed stays.

    It works at any depth: subfolders are moved up one level and emptied there.
    """
    with suppress(OSError, Conflict):
        if not stat.S_ISDIR(folder.look(name).st_mode):
            os.unlink(name, dir_fd=folder.fd)
            return
        with folder.enter(name, guest_folders) as top:
            while _emptied(top, guest_folders):
                pass
        os.rmdir(name, dir_fd=folder.fd)


def _emptied(top: Folder, guest_folders: GuestFolders) -> bool:
    """Empty a folder, moving deeper folders up one level. Returns whether folders are left. Raises OSError."""
    left = False
    for name in top.names():
        if not stat.S_ISDIR(top.look(name).st_mode):
            os.unlink(name, dir_fd=top.fd)
            continue
        with top.enter(name, guest_folders) as inner:
            for one in inner.names():
                if stat.S_ISDIR(inner.look(one).st_mode):
                    os.rename(one, fresh_name(), src_dir_fd=inner.fd, dst_dir_fd=top.fd)
                    left = True
                else:
                    os.unlink(one, dir_fd=inner.fd)
        os.rmdir(name, dir_fd=top.fd)
    return left
