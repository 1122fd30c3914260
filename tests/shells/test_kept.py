"""A kept shell from its opening to its end, on a real terminal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.support.engine import IMAGE

from sandbox_console.model.kept_shell import free_name, shell_name_problem


def until(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.1)


def shells(cli: Cli) -> list[dict[str, Any]]:
    return cli.json("shells", "ls")


def folder(cli: Cli) -> Path:
    return cli.home / "state" / "shells"


def notes(cli: Cli, action: str) -> list[dict[str, Any]]:
    rows = [row for row in cli.json("audit", "ls") if row["action"] == action]
    return [note["body"] for row in rows for note in cli.json("audit", "show", str(row["id"]))[0]["notes"]]


def test_a_kept_shell_is_left_found_again_and_ended(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box, "--as", "work") as terminal:
        terminal.type(b"x=kept$((40+2)); seq 300; echo d$((1))ne\r")
        terminal.until(b"d1ne")
        terminal.type(b"\x1d")
        assert b"shells attach work" in terminal.read_to_end()
        assert terminal.process.returncode == 0
        assert terminal.attributes() == terminal.before
    [told] = shells(cli)
    assert (told["name"], told["sandbox"], told["viewers"], told["answers"]) == ("work", box, [], True)
    with Terminal(cli, "shells", "attach", "work") as terminal:
        seen = terminal.until(b"d1ne")
        assert b"\n1\r\n" in seen.replace(b"\x1b[K", b"") or b"1\r\n2\r\n3" in seen
        terminal.type(b"echo $x.\r")
        terminal.until(b"kept42.")
        terminal.type(b"exit 9\r")
        terminal.read_to_end()
        assert terminal.process.returncode == 9
    assert shells(cli) == []
    assert list(folder(cli).iterdir()) == []
    ends = notes(cli, "shell")
    assert [one["exit"] for one in ends if "exit" in one] == [9]
    assert [one["viewer"] for one in ends if "viewer" in one] == ["the shell ended", "detached"]


def test_one_is_opened_and_attached_to_without_a_secret_that_cannot_be_read_here(
    cli: Cli, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "hunter2-and-more"
    with (cli.home / "config.toml").open("a") as file:
        file.write('\n[secrets.TOKEN]\nfrom = "env:MY_TOKEN"\n')
    image = IMAGE if backend == "docker" else "host"
    cli.env["MY_TOKEN"] = value
    words = ("--image", image, "--backend", backend, "--secret", "TOKEN", "--", "sleep", "600")
    cli.ok("create", "secretive", *words)
    with Terminal(cli, "shell", "secretive", "--as", "with") as terminal:
        terminal.type(b"echo =$TOKEN=\r")
        terminal.until(b"=[secret]=")
        terminal.type(b"\x1d")
        terminal.read_to_end()
    del cli.env["MY_TOKEN"]
    with Terminal(cli, "shell", "secretive", "--as", "without") as terminal:
        terminal.until(b"TOKEN cannot be read here: it is not passed on, and not masked in output")
        terminal.type(b"echo =$TOKEN=\r")
        terminal.until(b"==")
        terminal.type(b"\x1d")
        terminal.read_to_end()
    with Terminal(cli, "shells", "attach", "with") as terminal:  # its holder masks what its opener knew
        terminal.type(b"echo +$TOKEN+\r")
        assert value.encode() not in terminal.until(b"+[secret]+")
        terminal.type(b"exit\r")
        terminal.read_to_end()
    cli.ok("rm", "secretive", "--force")


def test_a_console_that_is_killed_leaves_its_kept_shell(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box, "--keep") as terminal:
        terminal.type(b"sleep 4241 & echo u$((1))p\r")
        assert b"Unclosed connection" not in terminal.until(b"u1p")
        terminal.process.kill()
        terminal.process.wait()
    cli.ok("exec", box, "--", "true")  # a later console ends shells of killed ones
    [told] = shells(cli)
    assert told["answers"]
    assert b"sleep 4241" in cli.ok("top", box)
    assert cli.json("shells", "end", told["name"])[0]["id"] == told["id"]
    assert b"sleep 4241" not in cli.ok("top", box)
    [end] = [one for one in notes(cli, "shell") if "reason" in one]
    assert end["reason"].startswith("it was ended by ")
    assert list(folder(cli).iterdir()) == []


def test_a_holder_that_is_killed_ends_its_guest_and_is_on_record(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box, "--keep") as terminal:
        terminal.type(b"setsid sleep 4241 & sleep 4242 & sleep 4243\r")
        until(lambda: b"sleep 4243" in cli.ok("top", box))
        os.kill(shells(cli)[0]["pid"], signal.SIGKILL)
        assert b"the process that held it is gone" in terminal.read_to_end()
    until(lambda: not list(folder(cli).iterdir()))
    assert b"sleep 424" not in cli.ok("top", box)
    assert [one["reason"] for one in notes(cli, "shell") if "exit" in one] == ["the process that held it was killed"]


def test_a_sandbox_that_is_removed_ends_its_kept_shells(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box, "--keep") as terminal:
        terminal.type(b"echo u$((1))p\r")
        terminal.until(b"u1p")
        terminal.type(b"\x1d")
        terminal.read_to_end()
    cli.ok("rm", box, "--force")
    until(lambda: not list(folder(cli).iterdir()))
    assert len([one for one in notes(cli, "shell") if "exit" in one]) == 1


def test_its_time_limit_ends_it(cli: Cli, box: str) -> None:
    with (cli.home / "config.toml").open("a") as file:
        file.write("[shell]\nkeep = true\nmax_duration_s = 3\n")
    with Terminal(cli, "shell", box) as terminal:
        terminal.type(b"echo u$((1))p\r")
        terminal.until(b"u1p")
        terminal.read_to_end()
    until(lambda: not list(folder(cli).iterdir()))
    assert [one["reason"] for one in notes(cli, "shell") if "exit" in one] == ["its time was over"]


def test_one_types_and_another_watches(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box, "--as", "two") as typist:
        typist.type(b"stty size; echo u$((1))p\r")
        typist.until(b"u1p")
        with Terminal(cli, "--read-only", "shells", "attach", "two") as watcher:
            watcher.until(b"u1p")
            assert sorted(one["read_only"] for one in shells(cli)[0]["viewers"]) == [False, True]
            watcher.type(b"echo no$((1))\r")
            typist.type(b"echo yes$((1))\r")
            watcher.until(b"yes1")
            assert b"no1" not in typist.until(b"yes1")
            watcher.type(b"\x1d")
            watcher.read_to_end()
            assert watcher.process.returncode == 0
        with Terminal(cli, "shell", "--attach", "two") as second:
            second.size(60, 20)
            second.process.send_signal(signal.SIGWINCH)
            second.type(b"sleep 0.5; stty size\r")
            typist.until(b"20 60")
            second.type(b"\x1d")
            second.read_to_end()
        typist.type(b"sleep 0.5; stty size\r")
        typist.until(b"24 80")
        typist.type(b"exit\r")
        typist.read_to_end()


def test_quarantine_ends_it(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box, "--keep") as terminal:
        terminal.type(b"echo u$((1))p\r")
        terminal.until(b"u1p")
        terminal.type(b"\x1d")
        terminal.read_to_end()
    cli.ok("quarantine", box)
    assert shells(cli) == []
    [end] = [one for one in notes(cli, "shell") if "exit" in one]
    assert end["reason"].startswith("quarantine by ")
    cli.ok("quarantine", "--undo", box)


def test_the_policy_can_forbid_it_and_then_a_shell_ends_with_its_console(cli: Cli, box: str) -> None:
    with (cli.home / "config.toml").open("a") as file:
        file.write("[shell]\nkeep = true\n[policy]\nkeep_shells = false\n")
    with Terminal(cli, "shell", box, "--keep") as terminal:
        assert b"the policy does not allow kept shells" in terminal.read_to_end()
        assert terminal.process.returncode == 125
    assert cli.json("audit", "ls", "--limit", "1")[0]["outcome"] == "denied"
    with Terminal(cli, "shell", box) as terminal:
        terminal.type(b"echo u$((1))p; exit 4\r")
        terminal.until(b"u1p")
        terminal.read_to_end()
        assert terminal.process.returncode == 4
    assert [one for one in notes(cli, "shell") if "viewer" in one] == []


def test_a_frozen_engine_delays_neither_the_list_nor_who_is_attached(
    cli: Cli, box: str, backend: str, request: pytest.FixtureRequest
) -> None:
    if backend != "docker":
        pytest.skip("bubblewrap has no engine")
    engine = request.getfixturevalue("docker_engine")
    with Terminal(cli, "shell", box, "--as", "work") as terminal:
        terminal.type(b"echo u$((1))p\r")
        terminal.until(b"u1p")
        engine.freeze()
        try:
            terminal.size(100, 30)
            terminal.process.send_signal(signal.SIGWINCH)
            assert [one["answers"] for one in shells(cli)] == [True]
            terminal.type(b"echo la$((1))ter\r")
        finally:
            engine.thaw()
        terminal.until(b"la1ter")
        # the size goes another way than what is typed, and may come after it
        terminal.type(b"until stty size | grep 100; do sleep 0.1; done; exit\r")
        terminal.until(b"30 100")
        terminal.read_to_end()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", "-x", "x\n", "\x1b[31m", "é", "x" * 64, "x\0"])
def test_a_name_with_odd_letters_is_no_shells_name(name: str) -> None:
    assert shell_name_problem(name)
    assert not shell_name_problem(free_name(name, set()))


def test_a_free_name_is_the_sandboxs_with_a_number() -> None:
    assert free_name("web", set()) == "web"
    assert free_name("web", {"web", "web-2"}) == "web-3"
