"""SIGWINCH while the one before is handled: the app has the size that the terminal has, whichever is told last."""

from __future__ import annotations

import sys

from tests.cli.conftest import Cli, cli
from tests.cli.terminal import Terminal

__all__ = ["cli"]

INTERRUPTED = """
import fcntl, struct, termios
from textual.drivers.linux_driver import LinuxDriver
from sandbox_console.__main__ import main

read = LinuxDriver._get_terminal_size
interrupted = []

def size_then_signal(driver):
    size = read(driver)
    if size == (10, 4) and not interrupted:
        interrupted.append(True)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))  # its SIGWINCH is handled here
    return size

LinuxDriver._get_terminal_size = size_then_signal
raise SystemExit(main(["--backend", "bubblewrap"]))
"""


def test_a_second_signal_during_the_first_leaves_the_size_that_the_terminal_has(cli: Cli) -> None:
    with Terminal(cli, program=[sys.executable, "-c", INTERRUPTED]) as terminal:
        terminal.until(b"No sandboxes")
        terminal.size(10, 4)
        terminal.until(b"BACKEND")  # a column for which only the newer size has room
        terminal.type(b"q")
        terminal.read_to_end()
        assert terminal.process.returncode == 0
