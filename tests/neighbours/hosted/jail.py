"""What the stand-ins of hosted providers run commands in: bubblewrap, entered by nsenter, which needs root."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path

_INSIDE = ("--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
           "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent")  # fmt: skip


class Jail:
    """A sandbox without a network, whose files are this machine's, read-only, and an empty /tmp."""

    def __init__(self) -> None:
        mine, its = os.pipe()
        words = ["bwrap", *_INSIDE, "--info-fd", str(its), "sleep", "infinity"]
        self._outer = subprocess.Popen(words, pass_fds=[its])
        os.close(its)
        with os.fdopen(mine) as told:
            self.pid = json.load(told)["child-pid"]

    def has(self, path: str) -> bool:
        return Path(f"/proc/{self.pid}/root{path}").is_dir()

    def signal(self, number: int) -> None:
        """Send a signal to every process in it."""
        inside = Path(f"/proc/{self.pid}/ns/pid").readlink()
        for one in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (one / "ns/pid").readlink() == inside:
                    os.kill(int(one.name), number)

    def end(self) -> None:
        """Kill all of it, and each nsenter: one that was stopped outlives its command, and holds up the jail's end."""
        entered = f"nsenter\0-t\0{self.pid}\0".encode()
        with contextlib.suppress(ProcessLookupError):  # with --die-with-parent it may not have asked for that yet
            os.kill(self.pid, signal.SIGKILL)
        self._outer.kill()
        for one in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (one / "cmdline").read_bytes().startswith(entered):
                    os.kill(int(one.name), signal.SIGKILL)
        self._outer.wait()

    async def start(self, words: Sequence[str], env: dict[str, str], cwd: str, terminal: int | None = None) -> Running:
        """Start a command: with pipes, or on a PTY. 126 and 127 as of nice, which envd uses, too."""
        argv = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-i", "-u",
                "sh", "-c", 'cd -- "$0" && exec nice -n 0 "$@"', cwd, *words]  # fmt: skip
        env = {"PATH": os.environ["PATH"], "HOME": "/tmp", **env}
        if terminal is None:
            made = await asyncio.create_subprocess_exec(
                *argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        else:
            made = await asyncio.create_subprocess_exec(
                *argv, env=env, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )  # fmt: skip
        return Running(made)


class Running:
    """A command, and how it ended."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def code(self) -> tuple[int, str]:
        """Its exit code, and the signal's description; the code is -1 if a signal ended it."""
        code = await self.process.wait()
        return (code, "") if code >= 0 else (-1, (signal.strsignal(-code) or "").lower())


def open_pty(cols: int, rows: int) -> tuple[int, int]:
    """The two ends of a PTY of this size."""
    master, slave = pty.openpty()
    resize(master, cols, rows)
    return master, slave


def resize(master: int, cols: int, rows: int) -> None:
    """Set a PTY's size."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
