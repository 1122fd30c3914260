"""The one lock of the log: an flock that every append, checkpoint and rotation holds."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_console.errors import AuditUnavailable

WAIT_S = 10.0


class Lock:
    """The lock's file, open for as long as the process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def release(self) -> None:
        """Close the file. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it. Raises AuditUnavailable where another process keeps it for WAIT_S."""
        deadline, pause = time.monotonic() + WAIT_S, 0.0002
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AuditUnavailable(
                        f"the audit log is locked by another process: {self._path}",
                        hint="find a stopped sandbox-console and end it",
                    ) from None
                time.sleep(pause)
                pause = min(pause * 2, 0.005)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
