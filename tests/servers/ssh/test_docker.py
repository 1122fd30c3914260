"""ssh into a container: a small image, users, files, and what is left when somebody is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.servers.ssh.conftest import Ssh
from tests.support.engine import IMAGE, SHELLLESS, docker_engine
from tests.support.require import missing

__all__ = ["docker_engine"]


@pytest.fixture
def cli(cli: Cli, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    if reason := missing("docker"):
        pytest.skip(reason)
    monkeypatch.setenv("DOCKER_HOST", request.getfixturevalue("docker_engine").url)
    (cli.home / "config.toml").write_text("[backends.microsandbox]\nenabled = false\n")
    yield cli
    for box in cli.json("ls", "--all"):
        cli.ok("rm", "--force", box["ref"])


@pytest.fixture
def box(cli: Cli) -> str:
    cli.ok("create", "box", "--image", IMAGE, "--backend", "docker", "--", "sleep", "600")
    return "box"


def test_commands_users_and_a_terminal(ssh: Ssh, box: str) -> None:
    done = ssh.run("box.sandbox", "cat; echo err >&2; exit 7", stdin=b"in")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in", b"err\n")
    assert ssh.run("12345@box.sandbox", "id -u").stdout == b"12345\n"
    assert ssh.run("box.sandbox", "kill -9 $$").returncode == 137
    with Terminal(ssh.cli, program=ssh.command("-t", "box.sandbox", "read line; echo =$line=; exit 4")) as terminal:
        terminal.type(b"typed\r")
        terminal.until(b"=typed=")
        terminal.read_to_end()
        assert terminal.process.returncode == 4


def test_files(ssh: Ssh, box: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x").write_bytes(os.urandom(300_000))
    done = ssh.run("-rq", str(tmp_path / "d"), "box.sandbox:/tmp/d", program="scp")
    assert (done.returncode, done.stderr) == (0, b"")
    done = ssh.run("-rq", "box.sandbox:/tmp/d", str(tmp_path / "back"), program="scp")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "back/x").read_bytes() == (tmp_path / "d/x").read_bytes()
    done = ssh.run(
        "-b", "-", "box.sandbox", program="sftp", stdin=b"rename /tmp/d/x /tmp/d/y\nchmod 600 /tmp/d/y\nls -l /tmp/d\n"
    )
    assert done.returncode == 0, done
    assert b"-rw-------" in done.stdout


def test_an_image_without_a_shell(ssh: Ssh, cli: Cli) -> None:
    cli.ok("create", "bare", "--image", SHELLLESS, "--backend", "docker")
    done = ssh.run("bare.sandbox", "id")
    assert done.returncode == 125
    assert b"error: the sandbox's image has no shell" in done.stderr
    assert b"hint: " in done.stderr


@pytest.mark.parametrize("whom", ["ssh", "proxy"])
@pytest.mark.parametrize("tty", ["-T", "-tt"])
def test_a_killed_client_or_proxy_leaves_nothing(ssh: Ssh, box: str, whom: str, tty: str) -> None:
    running = ssh.start(tty, "box.sandbox", "echo on; sleep 4241 & sleep 4242")
    assert running.stdout is not None
    assert running.stdout.readline().strip() == b"on"
    ssh.cli.until(lambda: all(b"sleep %d" % n in ssh.cli.ok("top", "box") for n in (4241, 4242)), "they did not start")
    [proxy] = ssh.proxies()
    if whom == "ssh":
        running.kill()
    else:
        os.kill(proxy, signal.SIGKILL)
    running.communicate(timeout=30)
    ssh.cli.until(lambda: not ssh.proxies(), "the proxy stayed")
    if whom == "proxy":
        ssh.cli.ok("exec", "box", "--", "true")  # the next writer ends what a killed console left
    ssh.cli.until(lambda: b"sleep 424" not in ssh.cli.ok("top", "box"), "a process stayed in the guest")
    ended = [row["outcome"] for row in ssh.rows("exec") if row["actor"].startswith("ssh:")]
    assert ended == ([] if tty == "-tt" else ["cancelled" if whom == "ssh" else "unknown"])
