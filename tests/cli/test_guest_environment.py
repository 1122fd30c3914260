"""The variable with which the console finds what a command started, as docs/docker.md describes it."""

from __future__ import annotations

import re

from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import requires

__all__ = ["docker_engine"]

VARIABLE = "SANDBOX_CONSOLE_EXEC"


def value(cli: Cli, *words: str) -> str:
    printed = cli.ok("exec", *words, "--", "sh", "-c", f"echo =${VARIABLE}=").decode()
    return printed.strip().strip("=")


@requires("docker")
def test_each_command_and_shell_on_docker_has_a_value_of_its_own(cli: Cli, docker_engine) -> None:
    cli.env["DOCKER_HOST"] = docker_engine.url
    (cli.home / "config.toml").write_text("[backends.bubblewrap]\nenabled = false\n")
    cli.ok("create", "box", "--image", IMAGE, "--", "sleep", "1000")
    first, second = value(cli, "box"), value(cli, "box")
    assert first
    assert second
    assert first != second
    with Terminal(cli, "shell", "box") as terminal:
        terminal.type(f"echo got$((1))=${VARIABLE}=end$((2))\r".encode())
        seen = terminal.until(b"=end2")
        found = re.search(rb"got1=(.+)$", seen)
        terminal.type(b"exit\r")
        terminal.read_to_end()
    assert found, seen
    assert found[1].decode() not in (first, second)
    cli.ok("rm", "--force", "box")


@requires("bubblewrap")
def test_on_bubblewrap_there_is_none(cli: Cli, box: str) -> None:
    assert value(cli, box) == ""
