"""The event loop of the supervisor: readable descriptors, timers and the ends of child processes."""

import os
import select
import signal
import time
from collections.abc import Callable

_WAIT_MOST_S = 86400.0  # epoll takes milliseconds in 32 bits


class Loop:
    """Runs one turn after another; a callback may register more."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._ready: dict[int, Callable[[], object]] = {}
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}

    def on(self, fd: int, call: Callable[[], object]) -> None:
        """Call a function whenever a descriptor can be read."""
        self._ready[fd] = call
        self._poll.register(fd, select.EPOLLIN)

    def off(self, fd: int) -> None:
        """Stop watching a descriptor."""
        if self._ready.pop(fd, None):
            self._poll.unregister(fd)

    def on_child(self, call: Callable[[], None]) -> None:
        """Call a function whenever a child process has ended or stopped."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        wake, self._wake = os.pipe()
        for fd in (wake, self._wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

        def woken() -> None:
            os.read(wake, 512)
            call()

        self.on(wake, woken)

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call a function once after a time. Each name has one timer."""
        self._timers[name] = time.monotonic() + seconds, call

    def awaits(self, name: str) -> bool:
        """Whether a timer of this name is set."""
        return name in self._timers

    def turn(self) -> None:
        """Wait for the next event or timer, and call its function."""
        found = [(fd, self._ready.get(fd)) for fd, _event in self._poll.poll(self._wait())]
        for fd, call in found:
            if call and self._ready.get(fd) is call:  # otherwise the number was reused, and the event was not for it
                call()
        now = time.monotonic()
        for name, (at, call) in list(self._timers.items()):
            if at <= now and self._timers.get(name, (0, None))[0] == at:
                del self._timers[name]
                call()

    def _wait(self) -> float:
        if not self._timers:
            return -1.0
        return min(max(0.0, min(at for at, _ in self._timers.values()) - time.monotonic()), _WAIT_MOST_S)
