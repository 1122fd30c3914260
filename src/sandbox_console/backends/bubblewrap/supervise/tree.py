"""Trees of processes, read from /proc."""

import os
import select
import time
from collections.abc import Callable

WAITS = "sandbox-waits"
"""The name of a helper that waits for a command."""


def children(pid: int) -> list[int]:
    """The child processes of all threads of a process."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def descendants(pid: int) -> list[int]:
    """Every process below one, parents first."""
    found: list[int] = []
    todo = children(pid)
    while todo:
        one = todo.pop()
        found.append(one)
        todo += children(one)
    return found


def state(pid: int) -> str:
    """The letter of a process's state, as in ps(1); empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def waits(pid: int) -> bool:
    """Whether a process is a helper that waits for a command."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read() == f"{WAITS}\n".encode()
    except (FileNotFoundError, ProcessLookupError):
        return False


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid it identifies a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def pidfd(pid: int) -> int:
    """A descriptor of a process; -1 if it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def wait_gone(fd: int, seconds: float, reap: Callable[[], None]) -> None:
    """Wait until the process of a :func:`pidfd` is gone, at most for a time; ``reap`` waits for our own children."""
    if fd < 0:
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    until = time.monotonic() + seconds
    while not poll.poll(5) and time.monotonic() < until:
        reap()
