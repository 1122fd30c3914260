"""Opens a path as a descriptor, one component at a time.

Above the guests' ground, links are followed as usual, since they are the operator's. From the first folder that a guest
can write, no link is followed and no mount is crossed, including the last component.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Self

from msgspec import Struct

from sandbox_console.errors import Conflict
from sandbox_console.hostfs.guest_writable import GuestFolders, Root
from sandbox_console.hostfs.kernel import mount_of, open_below

DEEPEST = 256
"""How many levels below a folder are walked. Each takes a descriptor, while a guest can make any number of folders."""
_MOST_LINKS = 40
"""The most links in one path, as in the kernel (path_resolution(7))."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ITSELF = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def planted(path: object, kind: str = "a link", root: Root | None = None) -> Conflict:
    """The error for a path that is refused because a guest may have made it, in ``root``."""
    hint = "look at it, and remove it or name the place it leads to"
    if root is None or not root.removed:
        return Conflict(f"{path} is {kind} where a sandbox can write", hint=hint)
    return Conflict(
        f"{path} is {kind} where a sandbox could write until it was removed",
        hint=f"{hint}; if nothing of the sandbox's is left in {root.path}: sandbox-console forget {root.path}",
    )


class Folder(Struct):
    """An open folder; ``root`` is the guests' folder that it is in, if any. Close it, or use it in a ``with``."""

    fd: int
    path: str
    root: Root | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it. Safe to call twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def look(self, name: str) -> os.stat_result:
        """The status of an entry. Links are not followed. Raises OSError."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def open(self, name: str, flags: int, mode: int = 0) -> int:
        """Open an entry, or a path below, without following links.

        Raises OSError; Conflict for a link or mount that a guest may have made.
        """
        try:
            return open_below(self.fd, name, flags, mode, leave=self.root is None)
        except OSError as error:
            if error.errno == errno.ELOOP and self.root is not None:
                raise planted(self.said(name), root=self.root) from None
            if error.errno == errno.EXDEV and self.root is not None:
                raise planted(self.said(name), "a mount", self.root) from None
            raise

    def enter(self, name: str, guest_folders: GuestFolders) -> Folder:
        """Open a folder in this one. Raises OSError, Conflict."""
        fd = self.open(name, _FOLDER)
        return Folder(fd, self.said(name), self._root(fd, guest_folders))

    def _root(self, fd: int, guest_folders: GuestFolders) -> Root | None:
        """The guests' folder that a folder in this one is in. One that a guest has now comes before a removed one's."""
        if self.root is None or self.root.removed:
            return guest_folders.holds(fd) or self.root
        return self.root

    def names(self) -> list[str]:
        """The names of the entries. Raises OSError."""
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def followed(self, name: str, guest_folders: GuestFolders) -> Location:
        """Where an entry leads, following an operator's links. Raises OSError, Conflict."""
        return find(os.path.join(os.readlink(f"/proc/self/fd/{self.fd}"), name), guest_folders)

    def entry(self, name: str) -> Location:
        """An entry itself; links are not followed. Raises OSError."""
        return Location(self.again(), name, _what(self, name))

    def again(self) -> Folder:
        """A duplicate, to be closed separately."""
        return Folder(os.dup(self.fd), self.path, self.root)

    def said(self, name: str) -> str:
        """The path of an entry, for messages."""
        return os.path.join(self.path, name) if name != "." else self.path


class Location(Struct):
    """Where a path leads: a folder, the name in it (``.`` is the folder itself), and what is there, if anything."""

    folder: Folder
    name: str
    what: os.stat_result | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.close()

    def again(self) -> Location:
        """A duplicate, to be closed separately."""
        return Location(self.folder.again(), self.name, self.what)

    @property
    def path(self) -> str:
        """The path, for messages."""
        return self.folder.said(self.name)

    @property
    def is_folder(self) -> bool:
        """Whether a folder is there."""
        return self.what is not None and stat.S_ISDIR(self.what.st_mode)

    @property
    def is_link(self) -> bool:
        """Whether a link is there."""
        return self.what is not None and stat.S_ISLNK(self.what.st_mode)


def find(path: str | Path, guest_folders: GuestFolders, *, follow: bool = True) -> Location:
    """Where a path of this machine leads; ``what`` is None if only the last part is missing.

    With ``follow``, an operator's link as the last component is followed too. Raises OSError if an earlier component is
    missing or forbidden, Conflict for a link or a mount on the guests' ground.
    """
    text = os.fspath(path)
    walk = _Walk(guest_folders)
    try:
        name = walk.go(text if text.startswith("/") else os.path.join(os.getcwd(), text), follow=follow)
        folder = walk.take()
        try:
            return Location(folder, name, _what(folder, name))
        except BaseException:
            folder.close()
            raise
    finally:
        walk.close()


def led_by(path: str | Path, guest_folders: GuestFolders) -> str:
    """The guests' folder in which a path lies, under whatever name it is reached; empty if it lies in none."""
    try:
        with find(path, guest_folders) as found:
            return found.folder.root.path if found.folder.root else ""
    except Conflict as error:  # it leads through a link or a mount of a guest's
        return error.message.partition(" is ")[0]
    except OSError:
        return ""


def folder_at(path: str | Path, guest_folders: GuestFolders) -> Folder:
    """Open a folder by its path. Raises OSError, Conflict."""
    with find(path, guest_folders) as found:
        if found.name == ".":
            return found.folder.again()
        return found.folder.enter(found.name, guest_folders)


def _what(folder: Folder, name: str) -> os.stat_result | None:
    try:
        return os.fstat(folder.fd) if name == "." else folder.look(name)
    except FileNotFoundError:
        return None


class _Walk:
    """The open folders from the root to the current one, so that ``..`` is the previous one."""

    def __init__(self, guest_folders: GuestFolders) -> None:
        self._ground, self._links = guest_folders, 0
        self._stack = [Folder(os.open("/", _FOLDER), "/")]

    def close(self) -> None:
        while self._stack:
            self._stack.pop().close()

    def take(self) -> Folder:
        """Take the current folder out of the walk; the caller closes it."""
        return self._stack.pop()

    def go(self, path: str, *, follow: bool) -> str:
        """Walk along a path, and return its last name."""
        todo = path.split("/")[::-1]
        while todo:
            part = todo.pop()
            last = not any(one not in ("", ".") for one in todo)
            if part in ("", "."):
                continue
            if part == "..":
                self._up()
            elif last and self._is_end(part, follow=follow):
                return part
            elif not self._down(part):
                todo += self._link(part).split("/")[::-1]
        return "."

    def _up(self) -> None:
        if len(self._stack) > 1:
            self._stack.pop().close()

    def _is_end(self, part: str, *, follow: bool) -> bool:
        """Whether the last component is the end of the path, and not a link to follow."""
        folder = self._stack[-1]
        st = _what(folder, part)
        if st is None or not stat.S_ISLNK(st.st_mode) or not follow:
            return True
        if folder.root is not None:
            raise planted(folder.said(part), root=folder.root)
        return not stat.S_ISDIR(st.st_mode) and self._leads_to_no_path(part)

    def _leads_to_no_path(self, part: str) -> bool:
        """Whether it is a kernel's link to a pipe, a socket or a terminal, such as those of a shell's ``<(...)``."""
        folder = self._stack[-1]
        if not _of_kernel(folder, part):
            return False
        st = os.stat(part, dir_fd=folder.fd)
        return not (stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode))

    def _down(self, part: str) -> bool:
        """Enter a folder. Returns False if it is a link to follow."""
        folder = self._stack[-1]
        try:
            self._stack.append(folder.enter(part, self._ground))
        except OSError as error:  # kernels return different errors for a link
            if error.errno not in (errno.ELOOP, errno.ENOTDIR) or not stat.S_ISLNK(folder.look(part).st_mode):
                raise
        else:
            return True
        if folder.root is not None:
            raise planted(folder.said(part), root=folder.root)
        return False

    def _link(self, part: str) -> str:
        """Where an operator's link leads. An absolute target starts at the root. Raises OSError."""
        folder = self._stack[-1]
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder.said(part))
        st, target = folder.look(part), os.readlink(part, dir_fd=folder.fd)
        _refuse_strangers(folder, part, st)
        if _of_kernel(folder, part):
            target = self._of_kernel(part)
        if target.startswith("/"):
            while len(self._stack) > 1:
                self._stack.pop().close()
        return target

    def _of_kernel(self, part: str) -> str:
        """The path behind a link such as /proc/self/cwd. Raises Conflict if it has another root."""
        folder = self._stack[-1]
        fd = os.open(part, os.O_PATH | os.O_CLOEXEC, dir_fd=folder.fd)
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
            try:
                there = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                raise Conflict(f"{folder.said(part)} leads to no path of this machine") from None
            try:
                same = os.path.samestat(os.fstat(fd), os.fstat(there)) and mount_of(fd) == mount_of(there)
            finally:
                os.close(there)
        finally:
            os.close(fd)
        if not same:
            raise Conflict(f"{folder.said(part)} leads into another process's files", hint="name the place itself")
        return path


def _of_kernel(folder: Folder, name: str) -> bool:
    """Whether the kernel generates a link. Only then does its length differ from its target's (proc_pid_fd(5))."""
    return folder.look(name).st_size != len(os.fsencode(os.readlink(name, dir_fd=folder.fd)))


def _refuse_strangers(folder: Folder, name: str, link: os.stat_result) -> None:
    """Refuse what the kernel does with ``fs.protected_symlinks``: a link in /tmp is followed only for its owner."""
    st = os.fstat(folder.fd)
    shared = st.st_mode & stat.S_ISVTX and st.st_mode & stat.S_IWOTH
    if shared and link.st_uid not in (os.geteuid(), st.st_uid):
        raise PermissionError(errno.EACCES, "another user's link in a folder for all", folder.said(name))
