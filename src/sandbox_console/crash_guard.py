"""Puts right what a console leaves that is killed: the state of its terminal, and shells in sandboxes.

No process can do that for itself after ``kill -9`` or a crash of the interpreter. This module is both ends: the console
starts the file as a process of its own, with a session of its own, and tells it through a pipe what there is to put
right. The kernel closes the pipe however the console ends. The guard is an interpreter with nothing imported (8 MB);
what ends shells is started only when it is needed.
"""

from __future__ import annotations

import json
import os
import sys
import termios

TYPE_CHECKING = False  # importing typing for it costs 8 ms of each command
if TYPE_CHECKING:
    from collections.abc import Sequence

END_SHELLS = "end-lost-shells"
"""The word of the command that ends the shells of consoles that are gone."""

_MODES_OFF = (9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026, 2048)
_RESET = (
    "\x1b[<u\x1b[>4m"  # the keyboard protocols of kitty and of xterm
    + "".join(f"\x1b[?{mode}l" for mode in _MODES_OFF)
    + "\x1b[?1049l\x1b[?7h\x1b[?25h\x1b[0 q\x1b[4l\x1b>\x1b(B\x0f\x1b[0m\r"
)
"""Everything that the app or a guest's program may have set, and the normal screen. See xterm's ctlseqs."""


class CrashGuard:
    """The guard of this process, started when there is first something to put right. It ends with the process."""

    def __init__(self) -> None:
        self._pipe = -1
        self._owner = 0
        self._shells = 0

    def hold_terminal(self) -> None:
        """Restore standard input's current settings and its normal screen if this process is killed from now on."""
        try:
            found = termios.tcgetattr(0)
        except (termios.error, OSError):
            return
        found[6] = [one if isinstance(one, int) else one[0] for one in found[6]]
        self._tell(f"terminal {json.dumps(found)}")

    def terminal_restored(self) -> None:
        """The terminal is as it was before. Safe to call at any time."""
        if self._mine:
            self._tell("restored")

    def hold_shell(self, options: Sequence[str] = ()) -> None:
        """End this process's shells if it is killed before as many calls of `shell_ended`.

        ``options`` are those of the command line that find the same configuration.
        """
        self._shells += 1
        if self._shells == 1:
            self._tell(f"shells {json.dumps([sys.executable, '-P', '-m', 'sandbox_console', END_SHELLS, *options])}")

    def shell_ended(self) -> None:
        """A shell's end is on record."""
        self._shells -= 1
        if self._shells == 0 and self._mine:
            self._tell("none")

    @property
    def _mine(self) -> bool:
        return self._pipe >= 0 and self._owner == os.getpid()  # a fork's child has the pipe, and no say in it

    def _tell(self, words: str) -> None:
        try:
            if not self._mine:
                self._start()
            os.write(self._pipe, words.encode() + b"\n")
        except OSError:  # without one, as without this module: the next console finds the shells
            return

    def _start(self) -> None:
        from sandbox_console.background_process import start_detached

        reads, writes = os.pipe()
        try:
            command = [sys.executable, "-I", "-S", __file__, str(reads)]
            start_detached(command, dict(os.environ), keep=[reads], held=0 if os.isatty(0) else -1)
        except BaseException:
            os.close(writes)
            raise
        finally:
            os.close(reads)
        self._pipe, self._owner = writes, os.getpid()


guard = CrashGuard()


def watch(pipe: int) -> list[str]:
    """Be the guard: wait for the end of the console, and restore its terminal. Returns the command to run next."""
    settings: list[object] | None = None
    command: list[str] = []
    with open(pipe, "rb") as told:
        for line in told:
            word, _, rest = line.decode().strip().partition(" ")
            if word == "terminal":
                settings = json.loads(rest)
            elif word == "restored":
                settings = None
            elif word == "shells":
                command = json.loads(rest)
            elif word == "none":
                command = []
    if settings is not None:
        _restore(settings)
    return command


def _restore(settings: list[object]) -> None:
    """Restore what the console set. Settings that somebody has changed since are not touched: a shell's line editor."""
    try:
        if not termios.tcgetattr(0)[3] & termios.ISIG:  # as the console leaves it, and no line editor
            settings[6] = [bytes([one]) if isinstance(one, int) else one for one in settings[6]]  # type: ignore[attr-defined]
            termios.tcsetattr(0, termios.TCSANOW, settings)  # type: ignore[arg-type]
        os.set_blocking(0, False)  # a terminal that is not read must not hold up what follows
        os.write(0, _RESET.encode())
    except (OSError, termios.error):  # the terminal is gone as well
        return


if __name__ == "__main__":
    import signal

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    after = watch(int(sys.argv[1]))
    if after:
        os.execv(after[0], after)  # noqa: S606 - no shell
