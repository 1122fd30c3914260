"""Every way for a console to end, with a shell open: what is left in the guest, the terminal, and the audit log."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing

__all__ = ["docker_engine"]

WAYS = ("q", "ctrl+c", "SIGTERM", "SIGHUP", "closed window", "kill -9", "crash")
NORMAL_SCREEN = b"\x1b[?1049l"
CRASHES = """
import signal, sys
from sandbox_console.tui.main.main_screen import MainScreen
from sandbox_console.tui.base import end_signals

def crash(app, signum):
    raise RuntimeError("a bug")

end_signals._quit = lambda app, signum: app.call_next(crash, app, signum)
from sandbox_console.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(params=["bubblewrap", "docker"])
def backend(request: pytest.FixtureRequest, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    if reason := missing(request.param):
        pytest.skip(reason)
    if request.param == "docker":
        monkeypatch.setenv("DOCKER_HOST", request.getfixturevalue("docker_engine").url)
        (cli.home / "config.toml").write_text("[backends.microsandbox]\nenabled = false\n")
    return request.param


@pytest.fixture
def box(cli: Cli, backend: str) -> Iterator[str]:
    image = IMAGE if backend == "docker" else "host"
    cli.ok("create", "box", "--image", image, "--backend", backend, "--", "sleep", "600")
    yield "box"
    cli.ok("rm", "box", "--force")


def until(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.1)


def sleeps(cli: Cli) -> list[int]:
    """The sleepers that are left in the guest: one of the shell's, one in the background, one in its own session."""
    told = cli.ok("top", "box")
    return [number for number in (4241, 4242, 4243) if b"sleep %d" % number in told]


def start_sleepers(cli: Cli, terminal: Terminal) -> None:
    terminal.type(b"setsid sleep 4241 & sleep 4242 & sleep 4243\r")
    until(lambda: sleeps(cli) == [4241, 4242, 4243])


def end(way: str, terminal: Terminal) -> None:
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


def note_of(cli: Cli) -> dict[str, object]:
    """The note about the shell's end: one row that says that it opened, and one note."""
    [shell] = [row for row in cli.json("audit", "ls") if row["action"] == "shell"]
    assert shell["outcome"] == "ok"
    [shown] = cli.json("audit", "show", str(shell["id"]))
    notes = shown["notes"]
    assert len(notes) <= 1, notes
    return notes[0]["body"] if notes else {}


def open_app(cli: Cli, backend: str, way: str) -> Terminal:
    if way != "crash":
        return Terminal(cli, "--backend", backend)
    return Terminal(cli, "--backend", backend, program=[sys.executable, "-c", CRASHES])


@pytest.mark.parametrize("way", WAYS)
def test_the_app(cli: Cli, box: str, backend: str, way: str) -> None:
    with open_app(cli, backend, way) as terminal:
        terminal.until(b"running")
        terminal.type(b"s")
        terminal.until(b"$ ")
        start_sleepers(cli, terminal)
        end(way, terminal)
        check_end(cli, terminal, way)
        assert terminal.process.returncode == {
            "q": 0, "ctrl+c": 130, "SIGTERM": 143, "SIGHUP": 129, "closed window": 129, "kill -9": -9, "crash": 1,
        }[way]  # fmt: skip


@pytest.mark.parametrize("way", ["SIGTERM", "closed window", "kill -9"])
def test_the_command(cli: Cli, box: str, backend: str, way: str) -> None:
    with Terminal(cli, "shell", "box") as terminal:
        terminal.until(b"$ ")
        terminal.type(b"printf '\\033[?1049h\\033[?1000h'\r")
        terminal.until(NORMAL_SCREEN.replace(b"l", b"h"))
        start_sleepers(cli, terminal)
        end(way, terminal)
        check_end(cli, terminal, way)


def check_end(cli: Cli, terminal: Terminal, way: str) -> None:
    if way == "closed window":
        terminal.process.wait(60)
    else:
        shown = terminal.read_to_end()
        if NORMAL_SCREEN not in shown:
            shown = terminal.until(NORMAL_SCREEN)  # a killed console's terminal is restored a moment later
        until(lambda: terminal.attributes() == terminal.before)
    until(lambda: note_of(cli))
    until(lambda: not sleeps(cli))
    note = note_of(cli)
    assert "error" not in note
    assert note["duration_s"] > 0
    assert ("killed" in str(note.get("reason"))) is (way == "kill -9")
    assert not list((cli.home / "state" / "shells").iterdir()), "nothing is left for a later console to end"
    assert b"unknown 0" in cli.ok("audit", "verify")


def test_without_its_guard_the_next_console_ends_it(cli: Cli, box: str, backend: str) -> None:
    with Terminal(cli, "shell", "box") as terminal:
        terminal.until(b"$ ")
        start_sleepers(cli, terminal)
        terminal.process.send_signal(signal.SIGSTOP)
        [guard] = [pid for pid in children(terminal.process.pid) if b"crash_guard.py" in words_of(pid)]
        os.kill(guard, signal.SIGKILL)
        terminal.process.kill()
        terminal.process.wait()
    assert not note_of(cli)
    with Terminal(cli, "shell", "box") as terminal:
        terminal.until(b"$ ")
        until(lambda: not sleeps(cli))
        terminal.type(b"exit\r")
        terminal.read_to_end()
    first = min(row["id"] for row in cli.json("audit", "ls") if row["action"] == "shell")
    [shown] = cli.json("audit", "show", str(first))
    assert [note["body"]["reason"] for note in shown["notes"]] == ["the process that held it was killed"]
    assert not list((cli.home / "state" / "shells").iterdir())


def children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for told in lists for word in told.read_text().split()]


def words_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
