"""The seven ways for a console with an open shell to end, and what each leaves: in the guest, on the terminal, on record."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal

WAYS = {"q": 0, "ctrl+c": 130, "SIGTERM": 143, "SIGHUP": 129, "closed window": 129, "kill -9": -9, "crash": 1}
"""With the console's exit code."""

SLEEPERS = (4241, 4242, 4243)
"""The shell's programs: one in a session of its own, one in the background, one in front."""

NORMAL_SCREEN = b"\x1b[?1049l"
_CRASHES = """
import signal, sys
from sandbox_console.tui.main.main_screen import MainScreen
from sandbox_console.tui.base import end_signals

def crash(app, signum):
    raise RuntimeError("a bug")

end_signals._quit = lambda app, signum: app.call_next(crash, app, signum)
from sandbox_console.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


class Ending(Struct):
    """What is left when a console has ended. Of a closed window ``stty`` is empty: its terminal is gone."""

    code: int
    stty: str
    normal_screen: bool
    left: tuple[int, ...]
    note: dict[str, Any]
    records: int


def until(check: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.1)


def sleepers(cli: Cli) -> tuple[int, ...]:
    """Those that are left in the guest."""
    told = cli.ok("top", "box")
    return tuple(number for number in SLEEPERS if b"sleep %d" % number in told)


def notes(cli: Cli) -> list[dict[str, Any]]:
    """The notes of the newest row of a shell, which says that it was opened."""
    row = cli.json("audit", "ls", "--action", "shell", "--limit", "1")[0]
    assert row["outcome"] == "ok"
    return [note["body"] for note in cli.json("audit", "show", str(row["id"]))[0]["notes"]]


def start_sleepers(cli: Cli, terminal: Terminal) -> None:
    """Start them in the shell that has the keys."""
    terminal.type(b"setsid sleep 4241 & sleep 4242 & sleep 4243\r")
    until(lambda: sleepers(cli) == SLEEPERS)


def end(way: str, terminal: Terminal) -> None:
    """End the console that has a shell open."""
    match way:
        case "q":
            terminal.type(b"\x1d")  # Ctrl+] leaves the shell
            time.sleep(0.5)
            terminal.type(b"q")
            terminal.until(b"Quit?")
            time.sleep(0.5)
            terminal.type(b"y")
        case "ctrl+c":
            terminal.process.send_signal(signal.SIGINT)
        case "SIGTERM" | "crash":
            terminal.process.terminate()
        case "SIGHUP":
            terminal.process.send_signal(signal.SIGHUP)
        case "kill -9":
            terminal.process.kill()
        case "closed window":
            terminal.hang_up()


@contextmanager
def app(cli: Cli, backend: str, way: str) -> Iterator[Terminal]:
    """The app with a shell in the sandbox ``box``, in which the sleepers run."""
    program: Sequence[str] = (
        [sys.executable, "-c", _CRASHES] if way == "crash" else [sys.executable, "-m", "sandbox_console"]
    )
    with Terminal(cli, "--backend", backend, program=program) as terminal:
        terminal.until(b"running")
        terminal.type(b"s")
        terminal.until(b"$ ")
        start_sleepers(cli, terminal)
        yield terminal


def ending(cli: Cli, terminal: Terminal, way: str, *, kept: bool = False) -> Ending:
    """End it, and wait for what has to follow: the end on record, and no sleeper, or all if the shell is kept."""
    shown = b""
    end(way, terminal)
    if way == "closed window":
        terminal.process.wait(60)
    else:
        shown = terminal.read_to_end()
        if NORMAL_SCREEN not in shown:
            shown = (
                terminal.until(NORMAL_SCREEN) + NORMAL_SCREEN
            )  # a killed console's terminal is restored a moment later
        until(lambda: terminal.attributes() == terminal.before)
    until(lambda: notes(cli))
    if not kept:
        until(lambda: not sleepers(cli))
    [note] = notes(cli)
    return Ending(
        code=terminal.process.returncode, stty=stty(terminal._inner) if terminal.fd >= 0 else "", normal_screen=NORMAL_SCREEN in shown,
        left=sleepers(cli), note=note, records=len(list((cli.home / "state" / "shells").iterdir())),
    )  # fmt: skip


def stty(fd: int) -> str:
    """A terminal's settings as a user sees them."""
    return subprocess.run(["stty", "-a"], stdin=fd, capture_output=True, text=True, check=True).stdout


def new_terminal() -> str:
    """The settings of a terminal that nothing has used yet."""
    outer, inner = pty.openpty()
    try:
        fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        return stty(inner)
    finally:
        os.close(outer)
        os.close(inner)
