"""The demo: real sandboxes, gone at the end however it ends."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.support.require import requires

pytestmark = requires("bubblewrap")


def test_without_a_terminal_it_prints_a_tour_and_removes_all(cli: Cli) -> None:
    done = cli("demo")
    out = done.stdout.decode()
    assert done.returncode == 0, out + done.stderr.decode()
    for part in (
        "$ sandbox-console create tour-",
        "demo-chatty-",
        "demo-idle-",
        "ready on stdout",
        "[exit 7]",
        "[exit 4]",
    ):
        assert part in out
    assert "error: the console is read-only" in out
    assert "\nok: " in out
    assert cli.json("ls", "--all") == []


def test_two_at_once_do_not_meet(cli: Cli) -> None:
    both = [cli.start("demo"), cli.start("demo")]
    ends = [process.communicate(timeout=90) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert cli.json("ls", "--all") == []


def test_without_a_home_it_brings_its_own_and_takes_it_away(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "tmp").mkdir()
    tmp_path.chmod(0o755)
    (tmp_path / "tmp").chmod(0o1777)
    cli.env = {"HOME": str(tmp_path / "user"), "TMPDIR": str(tmp_path / "tmp"), "SANDBOX_CONSOLE_HOME": ""}
    cli.env |= {f"XDG_{name}_HOME": "" for name in ("CONFIG", "STATE", "DATA", "CACHE")}
    assert cli("demo").returncode == 0
    cli.env = {}
    assert list((tmp_path / "user").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_keep_keeps_them(cli: Cli) -> None:
    assert b"kept" in cli("demo", "--keep").stderr
    rows = cli.json("ls", "-l", "demo=1")
    assert sorted(row["name"].split("-")[1] for row in rows) == ["chatty", "failing", "idle"]
    newest = max(rows, key=lambda row: row["created_at"])
    assert newest["name"].startswith("demo-chatty-")  # it is under the cursor, so that the first log seen goes on
    cli.until(lambda: any(row["exit"] and row["exit"]["code"] == 3 for row in cli.json("ls")), "none failed")
    cli.until(lambda: b"slow" in cli.ok("logs", *[row["name"] for row in rows], "--stream", "stderr"), "no stderr")


@pytest.mark.parametrize("late_s", [0.0, 0.05, 0.2, 0.4])
def test_a_signal_removes_them(cli: Cli, late_s: float) -> None:
    process = cli.start("demo", stdout=subprocess.PIPE)
    assert process.stdout is not None
    while b"Create one" not in process.stdout.readline():
        pass
    time.sleep(late_s)  # the tour's own command is being forked, has begun, or is creating
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert cli.json("ls", "--all") == []


def test_on_a_terminal_it_opens_the_tui_on_them(cli: Cli) -> None:
    with Terminal(cli, "demo") as terminal:
        terminal.until(b"demo-chatty")
        terminal.until(b"demo-idle")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.read_to_end()
        assert terminal.process.returncode == 128 + signal.SIGTERM
    assert cli.json("ls", "--all") == []
