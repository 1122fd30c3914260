"""The lock of the log: an flock that every append, checkpoint and rotation holds."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_console.errors import AuditUnavailable
from sandbox_console.hostfs import file_lock

WAIT_S = 40.0
"""Seconds to wait for the lock, or for a program that has the database. A backup may take half a minute."""

URGENT_S = 3.0
"""Seconds that an urgent row waits for the lock before it is recorded beside the log."""

TELL_S = 1.0
"""Seconds to wait for the lock before reporting who holds it."""


class LockHeld(AuditUnavailable):
    """Another process kept the lock for as long as the caller could wait."""


class Lock:
    """The lock's file, open for as long as the process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.waits: Callable[[str], None] = lambda _: None
        """Called after a wait of TELL_S, with a text that says for whom."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def release(self) -> None:
        """Close the file. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextmanager
    def held(self, wait_s: float | None = None, given_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Hold the lock. Raises LockHeld if another process keeps it for ``wait_s`` (WAIT_S), or once ``given_up``."""
        began, pause, reported = time.monotonic(), 0.0002, False
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = time.monotonic() - began
                if waited > TELL_S and not reported:
                    reported = True
                    self.waits(f"waiting for {file_lock.holder(self._path)}")
                if waited > (WAIT_S if wait_s is None else wait_s) or given_up():
                    raise LockHeld(
                        f"the audit log is locked by {file_lock.holder(self._path)}: {self._path}",
                        hint="a console that was stopped (Ctrl+Z) holds it until it goes on: continue or end it",
                    ) from None
                time.sleep(pause)
                pause = min(pause * 2, 0.005)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
