"""SIGINT, SIGTERM and SIGHUP, handled from a command's first moment to its last.

Until a verb can be cancelled the first one waits: Python would raise KeyboardInterrupt wherever it stands, and in the
middle of an import that crashed the interpreter or left it waiting for its own import lock for good. Then it cancels
the verb, which records that. A second one always ends the process, whatever it hangs on.
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
"""How long after a signal another one is taken for the same: timeout(1) sends two, and so does an impatient hand."""

END_S = 8.0
"""How long after a second signal what was begun may take to end."""

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_BASE = 128


class Signals:
    """What came, and who is to be told. Installed at most once; :func:`hold` makes it."""

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
        """That of a command which a signal ended; 0 where none came."""
        return _BASE + self.caught if self.caught else 0

    def install(self) -> None:
        """Take the signals. One that the caller has the process ignore, as nohup does with SIGHUP, stays ignored."""
        for number in _NUMBERS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._come)

    def restore(self) -> None:
        """Give the signals back to whom they belonged."""
        self.over()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def cancel_by(self, cancel: Callable[[], None]) -> None:
        """From now on a signal cancels: at once, where one was held."""
        self._cancel, self._over = cancel, False
        if self.caught:
            cancel()

    def over(self) -> None:
        """Nothing is left to cancel: from now on a signal ends the process."""
        self._cancel, self._over = None, True
        if self._ending is not None:
            self._ending.cancel()

    def end(self, number: int) -> None:
        """Take note of a signal, or of what counts as one."""
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
    """Take the signals of this process from here on. The main thread's alone."""
    global _held  # noqa: PLW0603 - signals are the process's own
    _held = Signals()
    _held.install()
    return _held


def release() -> None:
    """Give the signals back to a face that has handlers of its own; one that was held comes now."""
    global _held
    held, _held = _held, None
    if held is None:
        return
    held.restore()
    if held.caught:
        signal.raise_signal(held.caught)


class Taken:
    """A context in which a verb runs under the signals that are held, or under some that it takes itself."""

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
    """The terminal's settings as they are now, which a shell changes."""
    try:
        if not os.isatty(0):
            return None
        import termios

        return 0, termios.tcgetattr(0)
    except (OSError, ImportError):
        return None
