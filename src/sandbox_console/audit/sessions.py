"""A process is a session that holds a lock on its own file for as long as it lives."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path


class Session:
    """The session of the running process. The kernel frees the lock however the process dies."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.id = secrets.token_hex(8)
        self._path = folder / f"{self.id}.lock"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        """Free the lock and remove the file."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def alive(folder: Path, session: str) -> bool:
    """Whether the session's process still holds its lock; a dead one's file is removed."""
    path = folder / f"{session}.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # another user's: not ours to judge
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(fd)
