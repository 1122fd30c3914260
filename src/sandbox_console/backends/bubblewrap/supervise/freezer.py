"""Pauses every process of a sandbox: with its cgroup if that can freeze, otherwise with signals."""

import signal
from collections.abc import Callable

from . import cgroup, tree

_SWEEPS_MOST = 100


class Freezer:
    """Whether a sandbox is paused, and how. ``processes`` returns the guest's, without the console's helpers."""

    def __init__(self, group: cgroup.Group, processes: Callable[[], list[int]]) -> None:
        self._group, self._processes = group, processes
        self._stopped: list[int] | None = None

    @property
    def paused(self) -> bool:
        """Whether the user paused it."""
        return self._stopped is not None

    def pause(self) -> None:
        """Stop all processes. Raises TimeoutError if they fork faster than they can be stopped."""
        if self._group.can_freeze:
            self._group.freeze(True)
            self._stopped = []
        else:
            self._stopped = self._stop()

    def resume(self) -> None:
        """Resume all processes; does nothing if they are not paused. After a TimeoutError they are still paused."""
        if self._stopped is not None:
            self._release(self._stopped)
            self._stopped = None

    def release(self) -> None:
        """Resume a sandbox that is about to end. A second failure is ignored."""
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            self._release(stopped)

    def _release(self, stopped: list[int]) -> None:
        if self._group.can_freeze:
            self._group.freeze(False)
        tree.signal_all(stopped, signal.SIGCONT)

    def calm(self, frozen: bool) -> None:
        """Hold every process still while a tree is killed, if the kernel can do that."""
        if self._group.can_freeze and not self.paused:
            try:
                self._group.freeze(frozen)
            except (TimeoutError, OSError):
                pass  # the sweeps work without it, unless the tree forks faster than they do

    def _stop(self) -> list[int]:
        """Stop every process that is not stopped yet, in sweeps until none has forked in between."""
        stopped: list[int] = []
        for _ in range(_SWEEPS_MOST):
            fresh = [pid for pid in self._processes() if pid not in stopped and tree.state(pid) not in "TtZ"]
            if not fresh:
                return stopped
            tree.signal_all(fresh, signal.SIGSTOP)
            stopped += fresh
        tree.signal_all(stopped, signal.SIGCONT)
        raise TimeoutError("the sandbox starts processes faster than they can be stopped")
