"""Bytes that the app sends to a terminal of 120x40: idle, at a cursor key, at a flood of its log; beside `top`.

``python benchmarks/screen.py [SECONDS]``: twenty running sandboxes on the backend in memory, of which each sample
differs; on a real PTY, with every cell that changes and as Textual sends lines by itself. `top -d 2` is the peer that
every host has: it shows as many rows anew as often.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

ROWS, COLUMNS, SANDBOXES = 40, 120, 20
KEYS = 20
IDLE_BYTES_A_S, KEY_BYTES = 2000, 3000


async def serve(*, whole: bool, flood: bool) -> None:
    """The app in the child, on a fleet of which every value moves."""
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - its copy.py is not Python's
    from sandbox_console.model.log import LogRecord, Stream
    from sandbox_console.model.sandbox import Sandbox, SandboxRef, Stats, Status
    from sandbox_console.service import Config, open_console
    from sandbox_console.testing.fake_backend import FakeBackend
    from sandbox_console.tui.app import ConsoleApp

    now = time.time()
    boxes = [
        Sandbox(
            SandboxRef("fake", "local", f"{at:012x}"), f"box-{at:02}", Status.RUNNING, "python:3.12", now - 7200 - at
        )
        for at in range(SANDBOXES)
    ]
    stats = {
        box.ref.id: [Stats(now, 1.5 + (at * 7 + turn * 13) % 97, (40 + turn + at) << 20, pids=3) for turn in range(50)]
        for at, box in enumerate(boxes)
    }
    fake = FakeBackend(boxes, stats=stats)
    async with open_console(Config(backend="fake"), backends=[fake]) as console:
        app = ConsoleApp(console)
        if whole:
            app._sent.reduced = lambda update: update  # type: ignore[method-assign]
        task = asyncio.create_task(app.run_async())
        while flood and not task.done():
            lines = [LogRecord(time.time_ns(), Stream.STDOUT, f"line {at} of a flood\n".encode()) for at in range(100)]
            await fake.say(boxes[0].ref, *lines)
            await asyncio.sleep(0.01)
        await task


class Terminal:
    """A program on a PTY, and how much it has written."""

    def __init__(self, argv: list[str]) -> None:
        self.main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        home = tempfile.mkdtemp()
        environment = os.environ | {"SANDBOX_CONSOLE_HOME": home, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            argv, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True
        )
        os.close(other)

    def read(self, seconds: float) -> int:
        """Bytes that it writes in so many seconds."""
        total, until = 0, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.main], [], [], left)[0]:
                total += len(os.read(self.main, 65536))
        return total

    def press(self, key: bytes) -> int:
        """Bytes until it has been still for a while after a key, without what comes anyway."""
        os.write(self.main, key)
        return self.read(0.3)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.main)


def child(*words: str) -> list[str]:
    return [sys.executable, __file__, "serve", *words]


def measure(seconds: float, *words: str) -> tuple[float, float, float]:
    """Bytes a second idle, bytes a cursor key, bytes a second at a flood."""
    terminal = Terminal(child(*words))
    terminal.read(6)
    idle = terminal.read(seconds) / seconds
    key = sum(terminal.press(b"\x1b[B" if at % 8 < 4 else b"\x1b[A") for at in range(KEYS)) / KEYS - idle * 0.3
    terminal.close()
    terminal = Terminal(child(*words, "flood"))
    terminal.read(6)
    flood = terminal.read(seconds) / seconds
    terminal.close()
    return idle, max(0.0, key), flood


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(whole="whole" in sys.argv, flood="flood" in sys.argv))
        return 0
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    print(f"{'':24}{'idle B/s':>12}{'B a key':>12}{'flood B/s':>12}")
    whole = measure(seconds, "whole")
    print(f"{'lines whole (Textual)':24}{whole[0]:>12,.0f}{whole[1]:>12,.0f}{whole[2]:>12,.0f}")
    ours = measure(seconds)
    print(f"{'changed cells':24}{ours[0]:>12,.0f}{ours[1]:>12,.0f}{ours[2]:>12,.0f}")
    peer = Terminal(["top", "-d", "2"])
    peer.read(3)
    print(f"{'top -d 2':24}{peer.read(seconds) / seconds:>12,.0f}")
    peer.close()
    return int(ours[0] > IDLE_BYTES_A_S or ours[1] > KEY_BYTES)


if __name__ == "__main__":
    sys.exit(main())
