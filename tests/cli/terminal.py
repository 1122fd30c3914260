"""The command on a real terminal: a PTY with its own session, read and typed to by a test."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.cli.conftest import Cli

WAIT_S = 15.0
COMMAND = (sys.executable, "-m", "sandbox_console")


class Terminal:
    """``sandbox-console WORDS`` on a terminal of 80x24."""

    def __init__(self, cli: Cli, *words: str, program: Sequence[str] = COMMAND) -> None:
        self.fd, inner = pty.openpty()
        self.size(80, 24)
        self.before = termios.tcgetattr(inner)
        self._inner = inner
        env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(cli.home), "TERM": "xterm-256color", **cli.env}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):  # the last two are a test worker's, and would fix the app's size
            env.pop(name, None)
        self.process = subprocess.Popen(
            [*program, *words],
            stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - tests start no thread
        )  # fmt: skip
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the window."""
        if self.fd >= 0:
            os.close(self._inner)
            os.close(self.fd)
            self.fd = -1

    def size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, data: bytes) -> None:
        os.write(self.fd, data)

    def attributes(self) -> list[object]:
        return termios.tcgetattr(self._inner)

    def until(self, what: bytes) -> bytes:
        """Read until ``what`` was seen after the last call; gives what came before it."""
        deadline = time.monotonic() + WAIT_S
        while what not in self.seen:
            assert time.monotonic() < deadline, self.seen
            self._read()
        before, _, self.seen = self.seen.partition(what)
        return before

    def read_to_end(self) -> bytes:
        """Read until the process ends."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen
            self._read()
        self._read()
        return self.seen

    def _read(self) -> None:
        if select.select([self.fd], [], [], 0.05)[0]:
            self.seen += os.read(self.fd, 65536)
