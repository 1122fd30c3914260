"""100 simulated engines with 10,000 containers: the app's first rows, all rows, keys, memory and network.

Run: python benchmarks/fleet.py [hosts] [containers] [frozen] [flapping] [events per second]. The engines are one
process that answers from recorded answers over Unix sockets (tests/support/simulated_engines.py): what a network adds
is not in the figures. The app runs on a real PTY of 160x50. A key takes until the first frame with the cursor in its
new place. "All rows" are as many as the hosts have that neither freeze nor flap. Goals: first rows < 1 s, all < 5 s, a
key p95 < 50 ms, RSS < 400 MiB, idle network < 50 KB/s. Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEYS, KEY_EVERY_S, KEY_MOST_S = 40, 0.15, 2.0
IDLE_S, SETTLE_S, MOST_S = 10.0, 6.0, 60.0
SIZE = (50, 160)
ROW = re.compile(rb"h\d{3}-c\d{3}")
ROUND = [b"\x1b[B"] * 8 + [b"\x1b[6~"] * 2 + [b"\x1b[A"] * 8 + [b"\x1b[5~"] * 2
"""Down, page down, up and page up. One has no effect if its row has just become the last."""

Figure = tuple[str, float, str, float | None]


class Engines:
    """The process with the engines."""

    def __init__(self, folder: Path, numbers: list[int]) -> None:
        self.folder = folder
        words = [sys.executable, "-m", "tests.support.simulated_engines", str(folder), *map(str, numbers)]
        with (folder / "errors").open("wb") as errors:
            self._process = subprocess.Popen(words, cwd=ROOT, stderr=errors)
        while not (folder / "bytes").exists():
            time.sleep(0.05)

    def sent(self) -> int:
        (self.folder / "bytes").unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        while not (self.folder / "bytes").exists():
            time.sleep(0.01)
        return int((self.folder / "bytes").read_text())

    def switch(self) -> None:
        self._process.send_signal(signal.SIGUSR2)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(10)


def child(notes: str, rows: int, names: list[str]) -> None:
    """The app, which notes when all rows and when each move of the cursor are on the terminal."""
    from sandbox_console.service import Config, open_console
    from sandbox_console.tui import run, run_tui

    fd, plain = os.open(notes, os.O_WRONLY | os.O_APPEND), run._app_class

    def note(what: str) -> None:
        os.write(fd, f"{what} {time.monotonic()}\n".encode())

    def probed() -> type[Any]:
        class Probed(plain()):  # type: ignore[misc]
            whole, at = False, None

            def _display(self, screen: Any, renderable: Any) -> None:
                super()._display(screen, renderable)
                if self.main.is_mounted and self.main.table.cursor_key != self.at:
                    self.at = self.main.table.cursor_key
                    note("key")
                if not self.whole and len(self.fleet.sandboxes) >= rows:
                    self.whole = True
                    note("all")

        return Probed

    run._app_class = probed
    config = Config(backend="docker", backends={"docker": {"contexts": names}})
    run_tui(opener=lambda **_: open_console(config, only_backend="docker"))


class App:
    """The app on a PTY."""

    def __init__(self, notes: Path, rows: int, names: list[str]) -> None:
        self._notes = notes
        notes.touch()
        self.first_at = 0.0
        self.began = time.monotonic()
        self.pid, self._main = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_ANIMATIONS": "none"}
            os.execv(sys.executable, [sys.executable, __file__, "--child", str(notes), str(rows), *names])
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        seen = b""
        while True:
            try:
                seen = seen[-200:] + os.read(self._main, 1 << 16)
            except OSError:  # it has ended
                return
            if not self.first_at and ROW.search(seen):
                self.first_at = time.monotonic()

    def times(self, what: str) -> list[float]:
        """When it noted something, in seconds of the monotonic clock."""
        return [float(line.split()[1]) for line in self._notes.read_text().splitlines() if line.startswith(what)]

    def press(self, key: bytes) -> float | None:
        """How long it took until the cursor was seen in its new place, in seconds; None if it did not move."""
        before, began = len(self.times("key")), time.monotonic()
        os.write(self._main, key)
        while len(self.times("key")) == before:
            if time.monotonic() - began > KEY_MOST_S:
                return None
            time.sleep(0.003)
        return self.times("key")[before] - began

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def wait_for(done: Callable[[], object], problem: str) -> None:
    until = time.monotonic() + MOST_S
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"{problem} within {MOST_S:g} s")
        time.sleep(0.003)


def measure(engines: Engines, names: list[str], rows: int) -> Iterator[Figure]:
    app = App(engines.folder / "notes", rows, names)
    try:
        wait_for(lambda: app.first_at, "no row was shown")
        first_cpu = app.cpu_s()
        yield "first rows, with imports", app.first_at - app.began, "s", 1.0
        yield "CPU until then", first_cpu, "s", None
        wait_for(lambda: app.times("all"), f"{rows:,} rows were not shown")
        cpu = app.cpu_s()
        yield f"all {rows:,} rows", app.times("all")[0] - app.began, "s", 5.0
        yield "CPU until then", cpu, "s", None
        yield from network(engines, app)
        yield "RSS", app.rss_mib(), "MiB", 400.0
    finally:
        app.end()


def keys(app: App) -> list[Figure]:
    """With all that happens meanwhile."""
    began, cpu = time.monotonic(), app.cpu_s()
    took: list[float] = []
    for at in range(KEYS):
        seconds = app.press(ROUND[at % len(ROUND)])
        took += [] if seconds is None else [seconds * 1000]
        time.sleep(KEY_EVERY_S)
    took.sort()
    return [
        ("keys without effect", KEYS - len(took), "", KEYS / 10),
        ("key p50", took[len(took) // 2], "ms", None),
        ("key p95", took[int(len(took) * 0.95)], "ms", 50.0),
        ("CPU meanwhile", (app.cpu_s() - cpu) / (time.monotonic() - began) * 100, "%", None),
    ]


def network(engines: Engines, app: App) -> Iterator[Figure]:
    """With events, with keys between them, and without events."""

    def rate() -> tuple[float, float]:
        before, cpu = engines.sent(), app.cpu_s()
        time.sleep(IDLE_S)
        return (engines.sent() - before) / IDLE_S / 1000, (app.cpu_s() - cpu) / IDLE_S * 100

    time.sleep(2)
    yield "network, with events", rate()[0], "KB/s", None
    yield from keys(app)
    engines.switch()
    time.sleep(SETTLE_S)
    idle, cpu = rate()
    yield "network, idle", idle, "KB/s", 50.0
    yield "CPU, idle", cpu, "%", None


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
        return 0
    sys.path.insert(0, str(ROOT))
    from tests.support.simulated_engines import contexts

    numbers = [int(word) for word in sys.argv[1:]]
    numbers += [100, 10_000, 10, 10, 200][len(numbers) :]
    hosts, containers, frozen, flapping, _ = numbers
    folder = Path(tempfile.mkdtemp(prefix="sc-fleet-", dir="/tmp"))
    os.environ["SANDBOX_CONSOLE_HOME"], os.environ["DOCKER_CONFIG"] = str(folder / "home"), str(folder / "docker")
    os.environ.pop("DOCKER_HOST", None)
    names = [f"h{at:03}" for at in range(hosts)]
    contexts(folder / "docker", folder, names)
    engines = Engines(folder, numbers)
    load = os.getloadavg()[0]
    print(f"{hosts} hosts ({frozen} frozen, {flapping} flapping), {containers:,} containers, load {load:.1f}")
    missed = 0
    try:
        for name, value, unit, goal in measure(engines, names, containers // hosts * (hosts - frozen - flapping)):
            missed += goal is not None and value >= goal
            mark = "" if goal is None else f"goal < {goal:g} {'missed' if value >= goal else 'met'}"
            print(f"{name:28}{value:>10.1f} {unit:6}{mark}", flush=True)
    finally:
        engines.end()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
