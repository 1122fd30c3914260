"""A sandbox's longest life and longest idle time, as timers of the supervisor's loop."""

import time
from collections.abc import Callable

TYPE_CHECKING = False  # the typing module costs 1 MB
if TYPE_CHECKING:
    from .loop import Loop
    from .ports import Ports


class TimeLimits:
    """Ends a sandbox in time. ``end`` is called with the reason once a limit has run out.

    While ``busy`` is true, the sandbox is not idle.
    """

    def __init__(
        self,
        loop: "Loop",
        order: dict,  # type: ignore[type-arg]
        busy: Callable[[], bool],
        end: Callable[[str], None],
    ) -> None:
        self._loop, self._busy, self._end = loop, busy, end
        self._longest_s = order["max_duration_s"]
        self._idle_s = order["idle_timeout_s"]
        self._active_at = 0.0
        self.ports: Ports | None = None

    def begin(self) -> None:
        """Start the timers, as the sandbox is now running."""
        self.touch()
        if self._longest_s:
            self._loop.after("duration", self._longest_s, lambda: self._end("max_duration_s ran out"))

    def touch(self) -> None:
        """Note that something happened, so that the idle time starts over."""
        self._active_at = time.monotonic()
        if self._idle_s and not self._loop.awaits("idle"):
            self._loop.after("idle", self._idle_s, self._check_idle)

    def _check_idle(self) -> None:
        if self.ports:
            self._active_at = max(self._active_at, self.ports.used_at)
        if self._busy():
            self._active_at = time.monotonic()
        left = self._active_at + self._idle_s - time.monotonic()
        if left > 0:
            self._loop.after("idle", left, self._check_idle)
        else:
            self._end("idle_timeout_s ran out")
