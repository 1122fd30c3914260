"""Sessions: each process holds a lock on a file of its own for as long as it runs."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


class Session:
    """The session of this process. The kernel releases its lock however the process ends."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.id = secrets.token_hex(8)
        self._path = folder / f"{self.id}.lock"
        fresh = folder / f"{self.id}.new"
        self._fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        fresh.rename(self._path)  # locked first, so that nobody takes it for a dead session's
        with suppress(OSError):  # the pid is only for people, so a full disk may lack it: only the lock matters
            os.write(self._fd, f"{os.getpid()}\n".encode())

    def close(self, *, clean: bool = True) -> None:
        """Release the lock. A clean end also removes the file, so nobody looks for open attempts."""
        if self._fd >= 0:
            if clean:
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def dead(folder: Path) -> Iterator[str]:
    """The sessions whose process is gone but whose file is left."""
    for path in folder.glob("*.lock"):
        if not _alive(path):
            yield path.stem


def forget(folder: Path, ids: Iterable[str]) -> None:
    """Remove the files of dead sessions, once all their attempts have an end."""
    for id_ in ids:
        (folder / f"{id_}.lock").unlink(missing_ok=True)


def _alive(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True  # it has just ended cleanly
    except OSError:
        return True  # another user's, which we cannot judge
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)
