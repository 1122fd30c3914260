"""A real terminal for the apps of these tests: what they write to it is what a person's terminal would get."""

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
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class PtyRun:
    output: bytes
    code: int
    restored: bool


AGAIN_S = 1.0
Seen = bytes | tuple[bytes, ...]
"""What is waited for: one text, or all of some."""


def _has(output: bytes, seen: Seen) -> bool:
    return seen in output if isinstance(seen, bytes) else all(one in output for one in seen)


def _run(script: str, *args: str, size: tuple[int, int], send: dict[Seen, bytes], limit_s: float) -> PtyRun:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    before = termios.tcgetattr(slave)
    sizeless = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}  # of a worker
    process = subprocess.Popen(
        [sys.executable, str(HERE / script), *args],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env=sizeless | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_ANIMATIONS": "none"},
    )  # fmt: skip
    output, waiting, deadline = b"", dict(send), time.monotonic() + limit_s
    last, at = b"", 0.0
    try:
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            if select.select([master], [], [], 0 if ended else 0.05)[0]:
                output += os.read(master, 65536)
            elif ended:
                break
            for seen in [seen for seen in waiting if _has(output, seen)]:
                os.write(master, last := waiting.pop(seen))
                at = time.monotonic()
            if last and not waiting and not ended and time.monotonic() - at > AGAIN_S:
                os.write(master, last)  # a screen that was still coming up did not take it
                at = time.monotonic()
        restored = termios.tcgetattr(slave) == before
    finally:
        process.kill()
        code = process.wait()
        os.close(master)
        os.close(slave)
    return PtyRun(output, code, restored)


@pytest.fixture
def run_in_pty():
    def run(script, *args, size=(160, 150), send=None, limit_s=40):
        return _run(script, *args, size=size, send=send or {}, limit_s=limit_s)

    return run
