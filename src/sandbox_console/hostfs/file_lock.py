"""Locks on files (flock) by which consoles take turns. No wait is endless: a stopped process keeps its locks."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from sandbox_console.errors import Conflict
from sandbox_console.model.text import clean

WAIT_S = 5.0
"""Seconds to wait for a lock that others hold for milliseconds."""

_LOCKS = Path("/proc/locks")
_STOPPED = {"T", "t"}


class LockTimeout(Conflict):
    """Another process kept a lock for as long as the caller could wait."""


def take(fd: int, path: Path, wait_s: float | None = None) -> None:
    """Lock the open file at ``path``. Raises LockTimeout if another process keeps it for ``wait_s`` (WAIT_S)."""
    wait_s = WAIT_S if wait_s is None else wait_s
    began, pause = time.monotonic(), 0.001
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() - began > wait_s:
            raise _timeout(path, wait_s)
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def _timeout(path: Path, wait_s: float) -> LockTimeout:
    pid = _holder(path)
    if pid is None:
        return LockTimeout(f"{path} is locked by another process ({wait_s:g} s)", hint=f"see: fuser -v {path}")
    stopped = _state(pid) in _STOPPED
    hint = f"continue it (kill -CONT {pid}) or end it (kill -KILL {pid})" if stopped else f"wait for it, or: kill {pid}"
    who = f"{process(pid)}, which was stopped" if stopped else process(pid)
    return LockTimeout(f"{path} is locked by {who}: it did not let go within {wait_s:g} s", hint=hint)


def holder(*paths: Path) -> str:
    """Who holds a lock on one of these files, in words, if the kernel reports it."""
    pid = _holder(*paths)
    return "another process" if pid is None else process(pid)


def _holder(*paths: Path) -> int | None:
    """The process that holds a lock on one of these files (proc(5), /proc/locks)."""
    mine = {os.getpid(), 0, -1}  # 0: outside our pid namespace; -1: an open file description's lock
    with suppress(OSError):
        wanted = {_name(path) for path in paths if path.exists()}
        for line in _LOCKS.read_text().splitlines():
            words = line.split()
            if words[1] != "->" and words[3] == "WRITE" and words[5] in wanted and int(words[4]) not in mine:
                return int(words[4])
    return None


def _name(path: Path) -> str:
    st = path.stat()
    return f"{os.major(st.st_dev):02x}:{os.minor(st.st_dev):02x}:{st.st_ino}"


def process(pid: int) -> str:
    """A process in words."""
    try:
        return f"process {pid} ({clean((Path('/proc') / str(pid) / 'comm').read_text().strip())})"
    except OSError:
        return f"process {pid}"


def _state(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
