"""A shell of a real sandbox on a real terminal."""

from __future__ import annotations

import os
import pty
import signal

from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.support.require import requires

pytestmark = requires("bubblewrap")


def test_a_shell_types_resizes_and_gives_its_code(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box) as terminal:
        terminal.type(b"echo size $(stty size)$((40+2))\r")
        assert b"size 24 80" in terminal.until(b"8042") + b"8042"
        terminal.size(100, 40)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.type(b"sleep 0.3; echo $(stty size)=$((40+3))\r")
        terminal.until(b"40 100=43")
        terminal.type(b"exit 9\r")
        terminal.read_to_end()
        assert terminal.process.returncode == 9
        assert terminal.attributes() == terminal.before
    row = cli.json("audit", "ls", "--limit", "1")[0]
    assert (row["action"], row["outcome"]) == ("shell", "ok")
    [shown] = cli.json("audit", "show", str(row["id"]))
    assert shown["notes"][0]["body"]["exit"] == 9


def test_a_shell_cannot_act_on_the_terminal(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box) as terminal:
        terminal.type(b"printf '\\033]52;c;AAAA\\007\\033]0;evil\\007\\033[6n\\033[31mred\\033[0m%s\\n' $((40+2))\r")
        shown = terminal.until(b"red\x1b[0m42")
        assert b"\x1b]" not in shown
        assert b"\x1b[6n" not in shown
        assert b"\x1b[31m" in shown
        terminal.type(b"printf '\\033[?1049h\\033[?25l'; exit\r")
        end = terminal.read_to_end()
        assert end.index(b"\x1b[?1049l") > end.index(b"\x1b[?1049h")
        assert b"\x1b[?25h" in end


def test_ctrl_c_goes_to_the_guest(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box) as terminal:
        # The program says itself that it is in the foreground: an interrupt that meets bash before that ends nothing.
        terminal.type(b"sh -c 'echo u$((1))p; exec sleep 1000'\r")
        terminal.until(b"u1p")
        terminal.type(b"\x03")
        terminal.type(b"echo code=$?.\r")
        terminal.until(b"code=130.")
        terminal.type(b"exit\r")
        terminal.read_to_end()


def test_a_terminal_that_is_closed_ends_the_shell_as_a_hangup_does(cli: Cli, box: str) -> None:
    ours, theirs = pty.openpty()
    process = cli.start("shell", box, stdin=theirs, stdout=theirs)
    os.close(theirs)
    os.write(ours, b"echo u$((1))p; exec sleep 4321\r")
    while b"u1p" not in os.read(ours, 65536):
        pass
    os.close(ours)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + signal.SIGHUP, b"")
    cli.until(lambda: b"sleep 4321" not in cli.ok("top", box), "the shell goes on")
    assert [row["outcome"] for row in cli.json("audit", "ls") if row["action"] == "shell"] == ["ok"]


def test_a_signal_restores_the_terminal_and_ends_the_shell(cli: Cli, box: str) -> None:
    with Terminal(cli, "shell", box) as terminal:
        terminal.type(b"echo u$((1))p; sleep 1234\r")
        terminal.until(b"u1p")
        terminal.process.terminate()
        terminal.read_to_end()
        assert terminal.process.returncode == 128 + signal.SIGTERM
        assert terminal.attributes() == terminal.before
    assert b"1234" not in cli.ok("exec", box, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")


def test_without_a_terminal_a_shell_says_what_to_do(cli: Cli, box: str) -> None:
    done = cli("shell", box)
    assert done.returncode == 125
    assert b"exec NAME -- CMD" in done.stderr
