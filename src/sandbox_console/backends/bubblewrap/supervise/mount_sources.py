"""The folders of this host that bwrap mounts: a ``dir:`` image and the workspace.

Another user of the host may own such a folder, or one above it, and exchange it for a link while the sandbox starts.
bwrap mounts by path. So each folder is opened once, without following anybody else's links, and after bwrap has mounted
them all, and before anything runs inside, each mount is compared with what was opened.
"""

import errno
import os
import stat
import time
from collections.abc import Callable

OWN = {"proc", "dev", "tmp", "run", "sys", "home", "root", "workspace", "mnt", "media", "lost+found"}
"""Top-level folders that belong to the sandbox, not to the image."""

_OF_BWRAP = ("oldroot", "newroot")  # at the top while it mounts
_MOUNT_S = 20.0
_POLL_S = 0.002
_MOST_LINKS = 40  # in one path, as in the kernel (path_resolution(7))
_ITSELF = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class SourceChanged(OSError):
    """A folder of the host is not what it was when it was opened, or a link of another user leads to it."""


class MountSources:
    """What was opened, by the name of its mount at the top of the sandbox. Close it after `check`."""

    def __init__(self) -> None:
        self._opened: dict[str, tuple[int, str]] = {}

    def workspace(self, path: str) -> list[str]:
        """The arguments of bwrap for the workspace. Raises OSError."""
        self._opened["workspace"] = opened(path), path
        return ["--bind", path, "/workspace"]

    def image(self, path: str) -> list[str]:
        """The arguments that mount each top-level entry read-only, so that mount points need not exist in the tree.

        Raises OSError.
        """
        words: list[str] = []
        folder = opened(path)
        try:
            if os.path.samestat(os.fstat(folder), os.stat("/")):
                raise SourceChanged(errno.EACCES, "it is this whole host", path)
            for name in sorted(_names(folder)):
                if name not in OWN:
                    words += self._entry(folder, path, name)
        finally:
            os.close(folder)
        return words

    def _entry(self, folder: int, path: str, name: str) -> list[str]:
        fd = _step(name, folder)
        kind = stat.S_IFMT(os.fstat(fd).st_mode)
        if kind in (stat.S_IFDIR, stat.S_IFREG):
            self._opened[name] = fd, f"{path}/{name}"
            return ["--ro-bind", f"{path}/{name}", f"/{name}"]
        try:
            return ["--symlink", os.readlink("", dir_fd=fd), f"/{name}"] if kind == stat.S_IFLNK else []
        finally:
            os.close(fd)

    def check(self, init: int, ended: Callable[[], bool]) -> None:
        """Wait until the sandbox with the first process ``init`` has what was opened. Raises SourceChanged if not.

        While bwrap is not ready, the process still has the host's root, or bwrap's own with two folders.
        """
        until = time.monotonic() + _MOUNT_S
        while self._opened and not ended():
            complete = self._is_complete(init) or time.monotonic() > until
            if not (other := self._other(init)):
                return
            if complete:  # before it was compared
                raise SourceChanged(errno.EAGAIN, "it was exchanged while the sandbox started", other)
            time.sleep(_POLL_S)

    def _other(self, init: int) -> str:
        """The path of the first source that is not what is mounted; empty if there is none."""
        for name, (fd, path) in self._opened.items():
            try:
                if not os.path.samestat(os.fstat(fd), os.lstat(f"/proc/{init}/root/{name}")):
                    return path
            except OSError:
                return path
        return ""

    @staticmethod
    def _is_complete(init: int) -> bool:
        """Whether the sandbox's first process has its final root."""
        root = f"/proc/{init}/root"
        try:
            return not (os.path.samestat(os.stat(root), os.stat("/")) or {*_OF_BWRAP} <= {*os.listdir(root)})
        except OSError:
            return False

    def close(self) -> None:
        """Close the descriptors."""
        for fd, _ in self._opened.values():
            os.close(fd)
        self._opened.clear()


def opened(path: str) -> int:
    """A descriptor (O_PATH) of a file or folder. Links of root and of this user are followed. Raises OSError.

    Raises SourceChanged for a link of anybody else: who owns a link chooses what is mounted.
    """
    todo, links = _parts(path), 0
    at = os.open("/", _ITSELF)
    try:
        while todo:
            step = _step(todo.pop(), at)
            if stat.S_ISLNK((st := os.fstat(step)).st_mode):
                links += 1
                target = _target(step, st, path, links)
                todo += _parts(target)
                step = os.open("/", _ITSELF) if target.startswith("/") else os.dup(at)
            os.close(at)
            at = step
    except BaseException:
        os.close(at)
        raise
    return at


def _parts(path: str) -> list[str]:
    """The names in a path, the first one last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _step(name: str, folder: int) -> int:
    try:
        return os.open(name, _ITSELF | os.O_DIRECTORY, dir_fd=folder)  # without the flag nothing would be automounted
    except NotADirectoryError:
        return os.open(name, _ITSELF, dir_fd=folder)


def _target(link: int, st: os.stat_result, path: str, links: int) -> str:
    """Where a link leads. It is closed."""
    try:
        if st.st_uid not in (0, os.geteuid()):
            raise SourceChanged(errno.EACCES, f"a link of user {st.st_uid} leads to it", path)
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def _names(folder: int) -> list[str]:
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)
