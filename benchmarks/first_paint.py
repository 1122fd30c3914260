"""CPU until the app has painted 50 sandboxes, in a pty: the goal is < 0.6 s.

Run: python benchmarks/first_paint.py [rows] [runs]. The child runs the app on a backend in memory and ends when the
last row that fits is on its terminal; its CPU is what the kernel charged it, imports included.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

GOAL_S = 0.6
SIZE = (40, 120)
DEADLINE_S = 30


def child(rows: int) -> None:
    from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
    from sandbox_console.model.spec import SandboxSpec
    from sandbox_console.service import Config, open_console
    from sandbox_console.testing.fake_backend import FakeBackend
    from sandbox_console.tui import run_tui

    now = time.time()
    made = [
        Sandbox(SandboxRef("fake", "local", f"{at:012x}"), f"row-{at:05}", Status.RUNNING, "python:3.12", now - at,
                spec=SandboxSpec(f"row-{at:05}", image="python:3.12"))
        for at in range(rows)
    ]  # fmt: skip
    run_tui(opener=lambda **_: open_console(Config(), backends=[FakeBackend(made)]))


def measure(rows: int) -> dict[str, float]:
    began = time.monotonic()
    pid, master = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_ANIMATIONS": "none"}
        os.execv(sys.executable, [sys.executable, __file__, "--child", str(rows)])
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    seen = b""
    try:
        while b"row-00009" not in seen:
            if time.monotonic() - began > DEADLINE_S or not select.select([master], [], [], DEADLINE_S)[0]:
                raise TimeoutError(f"nothing was painted within {DEADLINE_S} s: {seen[-200:]!r}")
            seen += os.read(master, 65536)
        wall = time.monotonic() - began
        with Path(f"/proc/{pid}/stat").open() as file:
            fields = file.read().rsplit(")", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(master)
    return {"cpu_s": cpu, "wall_s": wall}


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]))
        return 0
    rows, runs = (int(word) for word in (sys.argv[1:] + ["50", "5"][len(sys.argv) - 1 :])[:2])
    with tempfile.TemporaryDirectory(prefix="first-paint-") as home:
        os.environ["SANDBOX_CONSOLE_HOME"] = home
        found = [measure(rows) for _ in range(runs)]
    cpu = statistics.median(one["cpu_s"] for one in found)
    wall = statistics.median(one["wall_s"] for one in found)
    print(json.dumps({"rows": rows, "cpu_s": cpu, "wall_s": round(wall, 3), "goal_cpu_s": GOAL_S, "ok": cpu < GOAL_S}))
    return 0 if cpu < GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
