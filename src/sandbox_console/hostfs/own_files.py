"""Reads the console's own small files, which somebody else may have replaced, and sets aside what cannot be used."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_NULL = os.makedev(1, 3)
"""Linux' number of /dev/null (Documentation/admin-guide/devices.txt)."""
_MOST_KEPT = 100
"""Numbers that are tried for the name of a file that is set aside."""

DAMAGED = "damaged"
"""The ending of a file that was set aside because it is damaged."""

NOT_OURS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What decoding a damaged file raises; the errors of json, msgspec and UTF-8 are ValueErrors."""

_DAMAGE = {errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.EPERM, errno.EACCES, errno.ENXIO}
_waiting: deque[str] = deque()
_seen: set[str] = set()

T = TypeVar("T")


def set_aside(path: Path, ending: str) -> Path:
    """Rename what is there to NAME.ENDING, or NAME.ENDING-2 and so on, and return the new path.

    Nothing is replaced. A link is renamed, not what it leads to. Raises OSError; FileNotFoundError if nothing is there.
    """
    for number in range(1, _MOST_KEPT + 1):
        kept = path.with_name(f"{path.name}.{ending}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(kept):
            path.rename(kept)
            return kept
    raise OSError(errno.EEXIST, f"{_MOST_KEPT} files of this name were set aside before", str(path))


def read_own(path: str | Path, limit: int, dir_fd: int | None = None, *, follow: bool = False) -> bytes:
    """Read a regular file of at most ``limit`` bytes, without following a link or waiting for a pipe's writer.

    ``follow`` is for files that the user edits and may keep elsewhere, behind a link. Raises OSError, whose text says
    what is there instead; FileNotFoundError if there is nothing.
    """
    with open_own(path, dir_fd, follow=follow) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        most = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit} bytes"
        raise OSError(errno.EFBIG, f"it is longer than {most}", str(path))
    return data


def open_own(path: str | Path, dir_fd: int | None = None, *, follow: bool = False) -> BinaryIO:
    """Open a file as :func:`read_own` does, for one that is too long to be read whole. Raises OSError."""
    try:
        fd = os.open(path, _READ & ~os.O_NOFOLLOW if follow else _READ, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link", str(path)) from None
        raise
    st = os.fstat(fd)
    null = follow and stat.S_ISCHR(st.st_mode) and st.st_rdev == _NULL  # the user's word for an empty file
    wrong = (errno.EINVAL, "it is not a file") if not (stat.S_ISREG(st.st_mode) or null) else None
    if not follow and os.geteuid() not in (0, st.st_uid) and st.st_uid != 0:
        wrong = errno.EPERM, "it belongs to another user"
    if wrong:
        os.close(fd)
        raise OSError(*wrong, str(path))
    return os.fdopen(fd, "rb")


def load_own(path: Path, limit: int, decode: Callable[[bytes], T]) -> T | None:
    """What a file contains; None if it is missing, damaged or cannot be read, and then the caller's defaults apply.

    A damaged one is renamed to NAME.damaged, so that nothing is lost when the file is written again, and the user is
    told once (:func:`told`).
    """
    try:
        return decode(read_own(path, limit))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason, damaged = error.strerror or type(error).__name__, error.errno in _DAMAGE
    except NOT_OURS:
        reason, damaged = "its content is not what a console writes", True
    if damaged:
        leave_damaged(path, reason)
    else:
        tell(f"{path} cannot be read ({reason}); the console goes on without it")
    return None


def leave_damaged(path: Path, reason: str) -> None:
    """Rename a damaged file to NAME.damaged and tell the user. If that fails, it stays, and that is told."""
    try:
        kept = f"is kept as {set_aside(path, DAMAGED).name}"
    except FileNotFoundError:  # another console was faster
        return
    except OSError as error:
        kept = f"cannot be renamed ({error.strerror})"
    tell(f"{path} is damaged ({reason}) and {kept}; the console goes on without it")


def tell(text: str) -> None:
    """Note a sentence for the user. The same one is told once."""
    if text not in _seen:
        _seen.add(text)
        _waiting.append(text)


def told() -> list[str]:
    """What the user has not been told yet, oldest first. It counts as told from now on."""
    return [_waiting.popleft() for _ in range(len(_waiting))]


def write_own(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace a file as a whole, with mode 0600; ``sync`` waits for the disk. Raises OSError, and the old one stays.

    What somebody put in place of it or of its part is replaced, and never written through.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with suppress(FileNotFoundError):
        part.unlink()
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(fd)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
