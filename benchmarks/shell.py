"""The terminal of a shell: throughput and the delay of the loop, Ctrl+C in a flood, the echo of a key, memory.

The echo is also measured in a container, beside ``docker exec -it``, where Docker can run.

Run it with ``python benchmarks/shell.py``. It prints figures, also the machine's load, and asserts none.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.engine import IMAGE, private_engine
from tests.support.require import missing
from textual.app import App, ComposeResult

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.model.action import Create, OpenShell, Remove
from sandbox_console.model.sandbox import Exit
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console
from sandbox_console.tui.shell.terminal_link import ShellLink
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator
from sandbox_console.tui.widgets.terminal.terminal import TerminalView

COLS, ROWS = 120, 40
FLOOD_MB = 120
TERMINALS = 50
ROUNDS = 9
KEYS = 100
TYPING_S = 0.05
"""Between two keys: nobody types faster, and what is drawn meanwhile is not in the way of the next echo."""


class Local:
    """A program on a PTY of this machine, as a session."""

    recorded, without, answers_itself = False, (), False

    def __init__(self, *argv: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execvpe(argv[0], argv, {**os.environ, "TERM": "xterm-256color", "PS1": "$ "})
        os.set_blocking(self.fd, False)
        self._ready = asyncio.Event()
        self.received = 0
        asyncio.get_running_loop().add_reader(self.fd, self._ready.set)

    async def read(self) -> bytes:
        while True:
            await self._ready.wait()
            self._ready.clear()
            try:
                data = os.read(self.fd, 1 << 18)
            except BlockingIOError:
                continue
            except OSError:
                return b""
            self.received += len(data)
            return data

    async def write(self, data: bytes) -> None:
        os.write(self.fd, data)

    async def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def wait(self) -> Exit:
        return Exit()

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class Chunks:
    """A session that writes lines as fast as they are read."""

    recorded, without, answers_itself = False, (), False

    def __init__(self, total: int) -> None:
        self._left = total
        line = b"\x1b[32m2026-01-01 12:00:00\x1b[0m INFO request served in 12 ms path=/api/v1/items status=200\r\n"
        self._chunk = (line * (1 << 18))[: 1 << 18]

    async def read(self) -> bytes:
        self._left -= len(self._chunk)
        await asyncio.sleep(0)
        return self._chunk if self._left > 0 else b""

    async def wait(self) -> Exit:
        return Exit(0)

    async def write(self, data: bytes) -> None: ...
    async def resize(self, cols: int, rows: int) -> None: ...
    async def close(self) -> None: ...


class Screen(App[None]):
    """One terminal on the whole screen."""

    def compose(self) -> ComposeResult:
        yield TerminalView()


async def lag(worst: list[float]) -> None:
    """Note by how much each sleep of 5 ms was late, in seconds."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.005)
        worst.append(time.perf_counter() - before - 0.005)


async def flood(view: TerminalView) -> str:
    """Lines at full speed into the view."""
    late: list[float] = []
    watch = asyncio.create_task(lag(late))
    ended = asyncio.Event()
    began, spent = time.perf_counter(), time.process_time()
    link = ShellLink(Chunks(FLOOD_MB << 20), view.emulator, lambda *_: ended.set())
    link.show_in(view)
    await ended.wait()
    took, spent = time.perf_counter() - began, time.process_time() - spent
    watch.cancel()
    late.sort()
    return (
        f"flood: {FLOOD_MB / took:.0f} MiB/s, {FLOOD_MB / spent:.0f} MiB a second of CPU; "
        f"loop late by {late[len(late) // 2] * 1e3:.1f} ms (median), "
        f"{late[int(len(late) * 0.99)] * 1e3:.1f} ms (99 %), {late[-1] * 1e3:.1f} ms (most)"
    )


async def seen(view: TerminalView, what: str) -> None:
    """Wait until the last line of the screen begins with a text."""
    while not view.screen_text().rstrip().split("\n")[-1].startswith(what):
        await asyncio.sleep(0.001)


async def interrupts(view: TerminalView) -> str:
    """Ctrl+C while ``yes`` runs, until the prompt is there."""
    session, found = Local("/bin/sh"), []
    link = ShellLink(session, view.emulator, lambda *_: None)
    link.show_in(view)
    await seen(view, "$")
    for _ in range(ROUNDS):
        link.send(b"yes\r")
        start = session.received
        while session.received - start < 5_000_000:
            await asyncio.sleep(0.01)
        began = time.perf_counter()
        link.send(b"\x03")
        await seen(view, "$")
        found.append(time.perf_counter() - began)
    await link.leave()
    await session.close()
    return f"Ctrl+C under yes: {statistics.median(found) * 1e3:.0f} ms (median), {max(found) * 1e3:.0f} ms (most)"


RAW = "stty raw -echo; exec cat"


async def echo_times(view: TerminalView, session: Any) -> list[float]:
    """From a key to its echo on the emulator, where ``cat`` echoes."""
    times, echoed = [], asyncio.Event()
    link = ShellLink(session, view.emulator, lambda *_: None, echoed.set)
    link.show_in(view)
    await asyncio.sleep(1)
    for _ in range(KEYS):
        echoed.clear()
        began = time.perf_counter()
        link.send(b"x")
        await echoed.wait()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(TYPING_S)
    await link.leave()
    return times


async def bare_times(local: Local) -> list[float]:
    """From a key to its echo, read by nothing but this loop."""
    times = []
    await asyncio.sleep(1)
    for _ in range(KEYS):
        began = time.perf_counter()
        await local.write(b"x")
        await local.read()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(TYPING_S)
    return times


async def echoes(view: TerminalView) -> str:
    """A key until its echo over a local ``cat`` has been interpreted."""
    session = Local("/bin/sh", "-c", RAW)
    times = await echo_times(view, session)
    await session.close()
    return f"echo of a key through the link: {statistics.median(times) * 1e3:.2f} ms (median)"


async def docker_echoes(view: TerminalView) -> str:
    """A key's echo in a container: the console's shell beside ``docker exec -it``."""
    async with open_console(backends=[DockerBackend("default")]) as console:
        made = await console.perform(
            Create(SandboxSpec("bench-echo", IMAGE, ("sleep", "600")), "docker", "default")
        ).result()
        assert made.ref is not None
        session = await console.shell(OpenShell(made.ref))
        await session.write(f"{RAW}\n".encode())
        ours = await echo_times(view, session)
        await session.close()
        peer = Local("docker", "exec", "-it", made.ref.id, "sh", "-c", RAW)
        theirs = await bare_times(peer)
        await peer.close()
        await console.perform(Remove(made.ref, force=True)).result()
    mine, other = (statistics.median(times) * 1e3 for times in (ours, theirs))
    told = f"docker exec -it {other:.2f} ms; added {mine - other:.2f} ms"
    return f"echo of a key in a container: {mine:.2f} ms (median); {told}"


def memory() -> str:
    """The resident memory of many terminals: with one screen of text, and of one with its scrollback full."""

    def rss() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    line = b"x" * (COLS - 1) + b"\r\n"
    before = rss()
    every = [GhosttyEmulator(COLS, ROWS) for _ in range(TERMINALS)]
    for one in every:
        one.feed(line * ROWS)
        one.refresh()
    small = (rss() - before) / TERMINALS / 1e6
    before = rss()
    for _ in range(110):
        every[0].feed(line * 100)
    kept = every[0].total - ROWS
    full = (rss() - before) / 1e6
    return f"memory: {small:.2f} MB each of {TERMINALS} with one screen; {full:.1f} MB for {kept:,} lines"


async def show(measure: Callable[[TerminalView], Awaitable[str]]) -> None:
    """Print one figure, measured in an app of its own."""
    app = Screen()
    async with app.run_test(size=(COLS, ROWS)):
        print(await measure(app.query_one(TerminalView)), flush=True)


async def main() -> None:
    """Print the figures."""
    print(f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    print(memory())
    for measure in (flood, interrupts, echoes):
        await show(measure)
    if missing("docker"):
        return
    with private_engine() as engine, tempfile.TemporaryDirectory() as home:
        os.environ |= {"DOCKER_HOST": engine.url, "SANDBOX_CONSOLE_HOME": home}
        await show(docker_echoes)


if __name__ == "__main__":
    asyncio.run(main())
