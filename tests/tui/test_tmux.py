"""The real program in tmux on a real sandbox, by mouse and keys as a terminal sends them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.require import requires

DEADLINE_S = 90.0
PROGRAM = [sys.executable, "-m", "sandbox_console"]

pytestmark = [
    requires("bubblewrap"),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux on PATH"),
    pytest.mark.timeout(600),
]


class Terminal:
    """A program in a tmux server of its own."""

    def __init__(self, folder: Path, command: str, env: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self._env = env
        self._run("new-session", "-d", "-s", "t", "-x", "110", "-y", "34", f"{command}; echo ENDED $?; sleep 600")

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], env=self._env, capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-t", "t")

    def key(self, name: str) -> None:
        self._run("send-keys", "-t", "t", name)

    def mouse(self, button: int, text: str, *, up: bool = True) -> None:
        """Press, and release, over a text: SGR reports, as xterm sends them."""
        found = ((y, line.index(text)) for y, line in enumerate(self.until(text).splitlines(), 1) if text in line)
        y, x = next(found)
        report = f"\x1b[<{button};{x + 2};{y}"
        self._run("send-keys", "-t", "t", "-l", f"{report}M" + (f"{report}m" if up else ""))

    def until(self, text: str) -> str:
        end = time.monotonic() + DEADLINE_S
        while text not in (shown := self.screen()):
            assert time.monotonic() < end, f"{text!r} did not come:\n{shown}"
            time.sleep(0.1)
        return shown

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture
def env(tmp_path, monkeypatch):
    found = {**os.environ, "SANDBOX_CONSOLE_HOME": str(tmp_path / "home"), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    for name in ("TMUX", "COLUMNS", "LINES"):  # the last two are a test worker's, and would be the app's size
        found.pop(name, None)
    return found


def console(env, *words):
    subprocess.run([*PROGRAM, *words], env=env, check=True, capture_output=True, timeout=DEADLINE_S)


def test_mouse_and_keys_in_a_real_terminal(tmp_path, env):
    write = "i=0; while :; do echo line $i of it; i=$((i+1)); [ $i -lt 60 ] || sleep 0.2; done"  # more than fits
    console(env, "create", "box", "--backend", "bubblewrap", "--image", "host", "--yes", "--", "sh", "-c", write)
    terminal = Terminal(tmp_path, shlex.join([*PROGRAM, "--backend", "bubblewrap"]), env)
    try:
        terminal.until("line 59 of it")
        terminal.until("FOLLOWING")
        terminal.mouse(64, "of it", up=False)  # the wheel
        terminal.until("PAUSED")
        terminal.mouse(0, "3 Spec")
        terminal.until("ASKED")
        terminal.mouse(0, "NAME")
        terminal.until("NAME ▲")
        terminal.mouse(0, "? Help")
        terminal.until("Keys")
        terminal.key("q")
        terminal.mouse(0, "1 Logs")
        terminal.until("PAUSED")
        terminal.key("G")
        terminal.until("FOLLOWING")
        terminal.mouse(0, "● running  ")
        terminal.key("x")
        terminal.until("Stop box?")
        terminal.key("y")
        terminal.until("NOT RUNNING: exited")
        terminal.key("q")
        terminal.until("ENDED 0")
    finally:
        terminal.close()
        console(env, "rm", "box", "--force", "--yes")
