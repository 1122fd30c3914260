"""Make the captures again: `python -m tests.emulator.record [PROGRAM ...]`, as root or a user with bubblewrap.

It runs each program in a sandbox without network, on a terminal that the app's emulator answers, types what programs.py
says, and stores what was written with the screens that xterm.js shows. It needs Debian's bubblewrap, htop, less, mc, nano,
tmux, vim and vttest, and npm.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

from tests.emulator import capture, xterm
from tests.emulator.capture import Capture
from tests.emulator.programs import PROGRAMS, Program, Step

from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

MOST_PAGES = 40
"""How often ``until`` presses Return."""
POEM = '''"""A module to look at."""
import sys

LINES = {"first": 1, "second": 2.5, "third": "漢字"}


def count(words: list[str], most: int = 10) -> int:
    # how many of them are long
    return sum(1 for word in words if len(word) > most)


class Poem:
    """Several lines."""

    def __init__(self, title: str) -> None:
        self.title = title

    def show(self) -> None:
        for number, name in enumerate(LINES):
            print(f"{number:>4} {name!r}", file=sys.stderr)
        return None


''' + "".join(f"def step_{number}(value):\n    return value * {number} - {'x' * number}\n\n" for number in range(12))
LONG = "".join(
    f"\x1b[3{number % 8}mline {number}\x1b[0m {'needle ' if number % 30 == 7 else ''}{'of a long text ' * (number % 9)}\n"
    for number in range(200)
)
WIDE = (
    "漢字かな한글\ne\u0301 a\u0308 n\u0303\n┌──┬──┐\n│漢│ab│\n└──┴──┘\n▁▂▃▄▅▆▇█ ░▒▓ ⣿⡇\n\U0001f600\U0001f680 plain\n"
    + "漢" * 45
    + "\n"
)
COLOURS = """#!/bin/sh
for n in 0 1 2 3 4 5 6 7; do printf "\\033[3${n}m fg $n \\033[9${n}m bright \\033[0;4${n}m bg \\033[10${n}m bright \\033[0m\\n"; done
n=16; while [ $n -lt 256 ]; do printf "\\033[48;5;${n}m  "; n=$((n+1)); done; printf "\\033[0m\\n"
"""
TRUECOLOUR = """#!/bin/sh
n=0; while [ $n -lt 400 ]; do printf "\\033[38;2;$((n*5%256));$((255-n*3%256));99;48;2;9;$((n*7%256));$((n%256))mx"; n=$((n+1)); done
printf "\\033[0m\\n\\033[38:2::10:200:30mcolons\\033[m\\n"
"""
LOOKS = """#!/bin/sh
for n in 1 2 3 4 5 7 8 9 21 53; do printf "\\033[${n}mlook $n\\033[0m "; done
printf "\\n\\033[4:3mcurly\\033[0m \\033[1;2;3;4;7;9mall\\033[22;23;24;27;29m none\\033[0m \\033[31;7mred\\033[27m ink\\033[0m\\n"
printf "\\033[44mto the end\\033[K\\n\\033[0m\\033[7mreversed\\033[K\\033[0m\\n"
"""
FILES = {
    "poem.py": POEM, "other.py": POEM.replace("long", "short").replace("Several", "Many"), "notes.txt": "notes\n" * 30,
    "long.txt": LONG, "wide.txt": WIDE, "colours.sh": COLOURS, "truecolour.sh": TRUECOLOUR, "looks.sh": LOOKS,
}  # fmt: skip
DATE_S = 1_700_000_000


def make_home(home: Path) -> None:
    """Fill the folder that the programs see, with one date everywhere."""
    (home / "folder").mkdir()
    for name, text in FILES.items():
        (home / name).write_text(text)
        (home / name).chmod(0o755 if name.endswith(".sh") else 0o644)
    for path in (*home.iterdir(), home):
        os.utime(path, (DATE_S, DATE_S))


def sandboxed(home: Path, argv: tuple[str, ...]) -> list[str]:
    """A command that sees nothing of this machine but its programs."""
    passwd = home.parent / "passwd"
    passwd.write_text("user:x:1000:1000::/home/user:/bin/sh\nroot:x:0:0::/root:/bin/sh\n")
    words = [
        "bwrap",
        "--unshare-all",
        "--hostname",
        "box",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--die-with-parent",
        "--clearenv",
    ]
    for name in ("usr", "bin", "lib", "lib64", "sbin"):
        words += ["--ro-bind", f"/{name}", f"/{name}"]
    for name in ("alternatives", "mc", "terminfo", "ld.so.cache"):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--ro-bind", str(passwd), "/etc/passwd", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    words += ["--bind", str(home), "/home/user", "--chdir", "/home/user"]
    for name, value in {
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "HOME": "/home/user",
        "PATH": "/usr/bin:/bin",
        "TZ": "UTC",
    }.items():
        words += ["--setenv", name, value]
    return [*words, *argv]


class Recorder:
    """A program on a terminal that the app's emulator answers."""

    def __init__(self, program: Program, argv: list[str]) -> None:
        self._program = program
        self.capture = Capture(program.name, *program.size, steps=[])
        self._emulator = GhosttyEmulator(*program.size)
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execvp(argv[0], argv)
        self._set_size(*program.size)

    def _set_size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def _wait(self) -> None:
        """Take what it writes until it has been quiet for a while."""
        while select.select([self._fd], [], [], self._program.quiet_s)[0]:
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:
                return
            if not data:
                return
            self.capture.steps.append(("out", data.decode("latin-1")))
            if replies := self._emulator.feed(data):
                os.write(self._fd, replies)

    def _checkpoint(self, name: str) -> str:
        self._wait()
        self._emulator.refresh()
        self.capture.steps.append(("at", name))
        return self._emulator.text()

    def take(self, step: Step) -> None:
        """Do one step of the program."""
        if step.size is not None:
            self._set_size(*step.size)
            self._emulator.resize(*step.size)
            self.capture.steps.append(("size", *step.size))
        with contextlib.suppress(OSError):
            os.write(self._fd, b"".join(self._keys(step.keys)))
        shown, page = self._checkpoint(step.name), 1
        while step.until and step.until not in shown and page < MOST_PAGES:
            page += 1
            os.write(self._fd, b"\r")
            shown = self._checkpoint(f"{step.name} {page}")

    def _keys(self, text: str) -> Iterator[bytes]:
        for name, typed in re.findall(r"<([a-z0-9]+)>|([^<]+)", text):
            yield self._emulator.key(name, None) if name else typed.encode()

    def close(self) -> None:
        """End the program, if it has not."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.close(self._fd)
        os.waitpid(self._pid, 0)


def joined(steps: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The steps with the outputs between two checkpoints made one."""
    found: list[tuple[object, ...]] = []
    for step in steps:
        if step[0] == "out" and found and found[-1][0] == "out":
            found[-1] = ("out", f"{found[-1][1]}{step[1]}")
        else:
            found.append(step)
    return found


def record(program: Program) -> Capture:
    """Run a program through its steps."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        make_home(home)
        for path in (home, home.parent):
            path.chmod(0o755)
        recorder = Recorder(program, sandboxed(home, program.argv))
        for step in program.steps:
            recorder.take(step)
        recorder.close()
    recorder.capture.steps = joined(recorder.capture.steps)
    return recorder.capture


def main(wanted: list[str]) -> int:
    """Record the programs, or those that are named."""
    if problem := xterm.install():
        sys.stderr.write(f"{problem}\n")
        return 1
    for program in PROGRAMS:
        if wanted and program.name not in wanted:
            continue
        made = record(program)
        [made.screens] = xterm.screens([made])
        capture.store(made)
        sys.stderr.write(f"{program.name}: {len(made.checkpoints)} checkpoints\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
