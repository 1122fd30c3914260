"""Handles SIGINT, SIGTERM and SIGHUP from a command's first moment to its last.

The first signal waits until a verb can be cancelled. Python would raise KeyboardInterrupt wherever it happens to be,
which in the middle of an import crashed the interpreter or left it waiting for its own import lock for ever. It then
cancels the verb, which records that. A second signal always ends the process, whatever it hangs on.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False  # importing typing for it costs 8 ms of each command
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

PATIENCE_S = 2.0
"""How long after a signal another one counts as the same: timeout(1) sends two, and so does an impatient user."""

END_S = 8.0
"""How long actions in flight may take to end after a second signal."""

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_BASE = 128


class Signals:
    """The signals that came, and what to call for them. Installed at most once; made by :func:`hold`."""

    def __init__(self) -> None:
        self.caught = 0
        self._at = 0.0
        self._again = False
        self._over = False
        self._ending: Any = None
        self._cancel: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}
        self._terminal = _terminal()

    def exit_code(self) -> int:
        """The exit code of a command that a signal ended; 0 if none came."""
        return _BASE + self.caught if self.caught else 0

    def install(self) -> None:
        """Handle the signals. One that the caller made the process ignore, as nohup does with SIGHUP, stays ignored."""
        for number in _NUMBERS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._come)

    def restore(self) -> None:
        """Restore the previous handlers."""
        self.over()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def cancel_by(self, cancel: Callable[[], None]) -> None:
        """Call ``cancel`` on a signal from now on, and at once if one was held."""
        self._cancel, self._over = cancel, False
        if self.caught:
            cancel()

    def over(self) -> None:
        """Let a signal end the process from now on, as nothing is left to cancel."""
        self._cancel, self._over = None, True
        if self._ending is not None:
            self._ending.cancel()

    def end(self, number: int) -> None:
        """Note a signal, or an event that counts as one."""
        now = time.monotonic()
        if self._over:
            self._exit(number)
        if not self.caught:
            self.caught, self._at = number, now
            if self._cancel is not None:
                self._cancel()
        elif self._cancel is None:
            self._exit(number)
        elif now - self._at < PATIENCE_S:
            self._end_soon(number)
        elif self._again:
            self._exit(number)
        else:
            self._again = True
            self._cancel()
            self._end_soon(number)

    def _come(self, number: int, _: FrameType | None) -> None:
        self.end(number)

    def _end_soon(self, number: int) -> None:
        import threading

        if self._ending is None:
            self._ending = threading.Timer(END_S, self._exit, [number])  # a thread: the loop itself may hang
            self._ending.daemon = True
            self._ending.start()

    def _exit(self, number: int) -> None:
        if self._terminal is not None:
            import termios

            termios.tcsetattr(self._terminal[0], termios.TCSANOW, self._terminal[1])
        os._exit(_BASE + number)


_held: Signals | None = None


def hold() -> Signals:
    """Handle the signals of this process from now on. Only for the main thread."""
    global _held  # noqa: PLW0603 - signals are the process's own
    _held = Signals()
    _held.install()
    return _held


def release() -> None:
    """Restore the handlers for a face that has its own; a held signal is delivered now."""
    global _held
    held, _held = _held, None
    if held is None:
        return
    held.restore()
    if held.caught:
        signal.raise_signal(held.caught)


class Taken:
    """A context in which a verb runs with the held signals, or with signals that the context handles itself."""

    def __enter__(self) -> Signals:
        self._own = None if _held is not None else Signals()
        if self._own is not None:
            self._own.install()
        return self._own or _held  # type: ignore[return-value]

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.restore()
        elif _held is not None:
            _held.over()


def _terminal() -> tuple[int, Any] | None:
    """The terminal's current settings, which a shell changes."""
    try:
        if not os.isatty(0):
            return None
        import termios

        return 0, termios.tcgetattr(0)
    except (OSError, ImportError):
        return None
