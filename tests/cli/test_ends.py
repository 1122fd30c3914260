"""Every way for a console to end, with a shell open: what is left in the guest, the terminal, and the audit log."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.endings import (
    NORMAL_SCREEN,
    SLEEPERS,
    WAYS,
    Ending,
    app,
    ending,
    new_terminal,
    notes,
    sleepers,
    start_sleepers,
    until,
)
from tests.cli.terminal import Terminal
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing

__all__ = ["docker_engine"]


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


@pytest.mark.parametrize("way", WAYS)
def test_the_app(cli: Cli, box: str, backend: str, way: str) -> None:
    with app(cli, backend, way) as terminal:
        check(cli, ending(cli, terminal, way), way, WAYS[way])


@pytest.mark.parametrize("way", ["SIGTERM", "closed window", "kill -9"])
def test_the_command(cli: Cli, box: str, backend: str, way: str) -> None:
    with Terminal(cli, "shell", "box") as terminal:
        terminal.until(b"$ ")
        terminal.type(b"printf '\\033[?1049h\\033[?1000h'\r")
        terminal.until(NORMAL_SCREEN.replace(b"l", b"h"))
        start_sleepers(cli, terminal)
        check(cli, ending(cli, terminal, way), way, WAYS[way])


def check(cli: Cli, found: Ending, way: str, code: int) -> None:
    assert found.code == code
    assert found.left == ()
    check_terminal(found, way)
    assert "error" not in found.note
    assert found.note["duration_s"] > 0
    assert ("killed" in str(found.note.get("reason"))) is (way == "kill -9")
    assert not list((cli.home / "state" / "shells").iterdir()), "nothing is left for a later console to end"
    assert b"unknown 0" in cli.ok("audit", "verify")


def check_terminal(found: Ending, way: str) -> None:
    gone = way == "closed window"
    assert found.stty == ("" if gone else new_terminal())
    assert found.normal_screen is not gone


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_app_with_a_kept_shell(cli: Cli, box: str, backend: str) -> None:
    with (cli.home / "config.toml").open("a") as file:
        file.write("[shell]\nkeep = true\n")
    for way, code in WAYS.items():
        with app(cli, backend, way) as terminal:
            found = ending(cli, terminal, way, kept=True)
        assert (found.code, found.left) == (code, SLEEPERS), way
        check_terminal(found, way)
        assert found.note["viewer"] == ("its console was killed" if way == "kill -9" else "detached"), way
        [kept] = cli.json("shells", "ls")
        assert (kept["answers"], kept["viewers"]) == (True, []), way
        cli.ok("shells", "end", kept["name"])
        assert sleepers(cli) == (), way
        assert [note["exit"] for note in notes(cli) if "exit" in note], way
        assert not list((cli.home / "state" / "shells").iterdir()), way
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
    assert not notes(cli)
    with Terminal(cli, "shell", "box") as terminal:
        terminal.until(b"$ ")
        until(lambda: not sleepers(cli))
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
