"""Shells with a terminal over the real OpenSSH client."""

from __future__ import annotations

import os
import signal

import pytest
from tests.cli.terminal import Terminal
from tests.servers.ssh.conftest import Ssh


def opened(ssh: Ssh, *words: str) -> Terminal:
    return Terminal(ssh.cli, program=ssh.command(*words))


def test_a_shell_with_its_size_and_exit_code(ssh: Ssh, box: str) -> None:
    with opened(ssh, "box.sandbox") as terminal:
        terminal.type(b"stty size; echo =$TERM=\r")
        terminal.until(b"24 80\r\n")
        terminal.until(b"=xterm-256color=")
        terminal.size(101, 43)
        terminal.type(b"until [ \"$(stty size)\" = '43 101' ]; do sleep 0.1; done; exit 5\r")
        terminal.read_to_end()
        assert terminal.process.returncode == 5
    assert ssh.note()["exit"] == 5


def test_a_command_on_a_terminal(ssh: Ssh, box: str) -> None:
    with opened(ssh, "-t", "box.sandbox", "tty; echo waiting; sleep 1000") as terminal:
        terminal.until(b"/dev/pts/")
        terminal.until(b"waiting")
        terminal.type(b"\x03")
        terminal.read_to_end()
        assert terminal.process.returncode == 130
    [row] = ssh.rows("shell")
    [shown] = ssh.cli.json("audit", "show", str(row["id"]))
    assert shown["attempt"]["body"]["command"] == "tty; echo waiting; sleep 1000"
    assert not ssh.rows("exec")


def test_a_refusal_on_a_terminal(ssh: Ssh, box: str) -> None:
    with opened(ssh, "somebody@box.sandbox") as terminal:
        assert b"error: " in terminal.read_to_end()
        assert terminal.process.returncode == 125


@pytest.mark.parametrize("way", ["hang up", "kill ssh", "kill proxy", "escape"])
def test_every_end_ends_the_guests_tree_and_is_on_record(ssh: Ssh, box: str, way: str) -> None:
    with opened(ssh, "box.sandbox") as terminal:
        terminal.type(b"setsid sleep 4241 & sleep 4242 & sleep 4243\r")
        ssh.cli.until(lambda: ssh.cli.ok("top", "box").count(b"sleep 424") == 3, "they did not start")
        match way:
            case "hang up":
                terminal.hang_up()
            case "kill ssh":
                terminal.process.kill()
            case "kill proxy":
                [proxy] = ssh.proxies()
                os.kill(proxy, signal.SIGKILL)
            case "escape":
                terminal.type(b"\r~.")
        ssh.cli.until(lambda: terminal.process.poll() is not None, "ssh stayed")
    ssh.cli.until(lambda: b"sleep 424" not in ssh.cli.ok("top", "box"), "a process stayed in the guest")
    ssh.cli.until(lambda: not ssh.proxies(), "the proxy stayed")
    if way == "kill proxy":  # its guard ends and notes it, or the next console
        ssh.cli.ok("exec", "box", "--", "true")
    ssh.cli.until(lambda: _noted(ssh), "the end is not on record")


def _noted(ssh: Ssh) -> bool:
    [shown] = ssh.cli.json("audit", "show", str(ssh.rows("shell")[0]["id"]))
    return len(shown["notes"]) == 1
