"""A shell that is brought to an image without one: put into memory, opened, and on record."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.servers.ssh import backends
from tests.servers.ssh.conftest import Ssh
from tests.support.engine import SHELLLESS, docker_engine
from tests.support.require import requires

__all__ = ["docker_engine"]

backend, cli = backends.backend, backends.cli
Make = Callable[..., str]

pytestmark = requires("busybox")


@pytest.fixture
def make(cli: Cli, backend: str) -> Iterator[Make]:
    """Makes a sandbox whose image has one program."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as root:
        Path(root).chmod(0o755)
        Path(root, "bin").mkdir()
        shutil.copy(str(shutil.which("busybox")), Path(root, "bin/sleep"))
        image = SHELLLESS if backend == "docker" else f"dir:{root}"

        def made(name: str, *options: str) -> str:
            cli.ok("create", name, "--image", image, "--backend", backend, *options, "--", "/bin/sleep", "1000")
            return name

        yield made
        cli.ok("rm", "--force", "bare")


def actions(cli: Cli) -> list[tuple[str, str]]:
    return [(row["action"], row["outcome"]) for row in reversed(cli.json("audit", "ls"))]


def test_it_is_offered_brought_and_on_record(cli: Cli, make: Make) -> None:
    make("bare")
    with Terminal(cli, "shell", "bare") as terminal:
        said = terminal.read_to_end()
    assert b"the sandbox's image has no shell" in said
    assert b"shell NAME --busybox" in said.replace(b"\r\n", b" ")
    with Terminal(cli, "shell", "bare", "--busybox", "--workdir", "/tmp", "--env", "GREETING=hello") as terminal:
        terminal.type(b"echo =$GREETING=$(pwd)=; ls -d /tmp/.s*; ls / | grep busybox || echo none left; exit 3\r")
        terminal.until(b"=hello=/tmp=")
        terminal.until(b"/tmp/.sandbox-console-busybox")
        terminal.until(b"none left")
        terminal.read_to_end()
        assert terminal.process.returncode == 3
    assert actions(cli)[1] == ("shell", "unsupported")
    found = actions(cli)[2:]
    assert found[:2] == [("upload", "ok"), ("exec", "ok")]
    assert found[-1] == ("shell", "ok")


def test_ssh_finds_it_once_it_is_there(cli: Cli, make: Make, tmp_path: Path) -> None:
    make("bare")
    config = tmp_path / "ssh_config"
    config.write_bytes(cli.ok("ssh-config"))
    ssh = Ssh(cli, config)
    refused = ssh.run("bare.sandbox", "true")
    assert refused.returncode == 125
    assert b"sandbox-console shell bare --busybox brings one" in refused.stderr
    with Terminal(cli, "shell", "bare", "--busybox") as terminal:
        terminal.type(b"exit\r")
        terminal.read_to_end()
    with config.open("a") as file:  # one connection for all
        file.write(f"Host *\n    ControlMaster auto\n    ControlPath {tmp_path}/c\n    ControlPersist 60\n")
    done = ssh.run("bare.sandbox", "echo 1 | grep -c 1; exit 4", stderr=subprocess.DEVNULL, capture_output=False,
                   stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert (done.returncode, done.stdout) == (4, b"1\n")
        done = ssh.run("-tt", "bare.sandbox", "tty | grep -c pts; exit 5")
        assert (done.returncode, done.stdout) == (5, b"1\r\n")
        done = ssh.run("-b", "-", "bare.sandbox", program="sftp", stdin=b"rmdir /bin\n")
        assert b"rmdir: '/bin'" in done.stderr, "BusyBox's own words"
    finally:
        ssh.run("-O", "exit", "bare.sandbox")


def test_it_stays_out_where_the_policy_says_so_or_nothing_can_be_put(cli: Cli, make: Make, backend: str) -> None:
    make("bare", *(("--read-only-root",) if backend == "docker" else ()))
    if backend == "docker":
        with Terminal(cli, "shell", "bare", "--busybox") as terminal:
            said = terminal.read_to_end().replace(b"\r\n", b" ")
        assert b"no shell can be brought: / cannot be written" in said
    config = cli.home / "config.toml"
    config.write_text(f'{config.read_text()}[policy]\ndeny = ["upload"]\n')
    with Terminal(cli, "shell", "bare", "--busybox") as terminal:
        assert b"the policy denies upload" in terminal.read_to_end()
    assert ("shell", "ok") not in actions(cli)
