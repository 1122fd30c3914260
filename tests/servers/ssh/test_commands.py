"""Commands over the real OpenSSH client."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.servers.ssh.conftest import Ssh


def test_output_streams_and_exit_code(ssh: Ssh, box: str) -> None:
    done = ssh.run("box.sandbox", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    [row] = ssh.rows("exec")
    assert row["outcome"] == "ok"
    assert row["actor"].startswith("ssh:")
    assert row["name"] == "box"


def test_bytes_pass_unchanged_both_ways(ssh: Ssh, box: str) -> None:
    data = os.urandom(3_000_000)
    assert ssh.run("box.sandbox", "cat", stdin=data).stdout == data
    told = ssh.run("box.sandbox", "sha256sum", stdin=data).stdout.split()[0].decode()
    assert told == hashlib.sha256(data).hexdigest()


def test_a_command_ended_by_a_signal(ssh: Ssh, box: str) -> None:
    assert ssh.run("box.sandbox", "kill -9 $$").returncode == 137


def test_without_a_command_standard_input_is_the_script(ssh: Ssh, box: str) -> None:
    done = ssh.run("-T", "box.sandbox", stdin=b"echo $((40 + 2))\nexit 3\n")
    assert (done.returncode, done.stdout) == (3, b"42\n")


def test_only_listed_variables_are_passed_on(ssh: Ssh, box: str) -> None:
    words = (
        "-o",
        "SetEnv=LC_ALL=C.UTF-8 GIT_PROTOCOL=version=2 LD_PRELOAD=/tmp/x.so TOKEN=canary",
        "box.sandbox",
        "env",
    )
    told = ssh.run(*words).stdout
    assert b"LC_ALL=C.UTF-8\n" in told
    assert b"GIT_PROTOCOL=version=2\n" in told
    assert b"LD_PRELOAD" not in told
    assert b"canary" not in told


def test_a_missing_program_is_named(ssh: Ssh, box: str) -> None:
    done = ssh.run("box.sandbox", "/nonexistent/rsync --server -vlogDtpr . /tmp")
    assert done.returncode == 127
    assert b"sandbox-console: box has no rsync, which rsync needs there\n" in done.stderr


def test_the_key_is_the_only_way_in(ssh: Ssh, box: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    words = ("-o", f"IdentityFile={other}", "-o", "BatchMode=yes", "box.sandbox", "true")
    config = ssh.config.read_text().replace("    IdentityFile", "    # IdentityFile")
    ssh.config.write_text(config)
    done = ssh.run(*words)
    assert done.returncode == 255
    assert b"Permission denied (publickey)" in done.stderr
    assert not ssh.rows("exec")


def test_another_host_key_is_refused(ssh: Ssh, box: str) -> None:
    known = ssh.cli.home / "state/ssh/known_hosts"
    fresh = subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", known.with_name("x")], check=True, capture_output=True
    )
    assert fresh.returncode == 0
    (ssh.config.parent / "known").write_text("sandbox-console " + known.with_name("x.pub").read_text())
    done = ssh.run("-o", f"UserKnownHostsFile={ssh.config.parent / 'known'}", "box.sandbox", "true")
    assert done.returncode == 255
    assert b"Host key verification failed" in done.stderr


def test_a_user_that_the_sandbox_has_not(ssh: Ssh, box: str) -> None:
    done = ssh.run("somebody@box.sandbox", "id")
    assert done.returncode == 125
    assert done.stderr.startswith(b"error: exec.user is unsupported")


def test_names_that_mean_nothing_or_are_stopped(ssh: Ssh, box: str) -> None:
    done = ssh.run("nosuch.sandbox", "true")
    assert done.returncode == 255
    assert done.stderr.startswith(b"error: no sandbox is called 'nosuch'\n")
    ssh.cli.ok("stop", "box", "--grace", "0s")
    done = ssh.run("box.sandbox", "true")
    assert done.returncode == 255
    assert done.stderr.startswith(b"error: box is not running")
    assert b"hint: sandbox-console start box" in done.stderr


def test_the_policy_is_obeyed(ssh: Ssh, box: str) -> None:
    with (ssh.cli.home / "config.toml").open("a") as config:
        config.write("[policy]\nread_only = true\n")
    try:
        done = ssh.run("box.sandbox", "touch /tmp/x")
    finally:
        text = (ssh.cli.home / "config.toml").read_text()
        (ssh.cli.home / "config.toml").write_text(text.replace("read_only = true", "read_only = false"))
    assert done.returncode == 125
    assert b"error:" in done.stderr
    assert ssh.run("box.sandbox", "test ! -e /tmp/x").returncode == 0
    assert [row["outcome"] for row in ssh.rows("exec")][-1] == "denied"


def test_secrets_are_masked(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("canary-4f1c2a9b77")
    with (cli.home / "config.toml").open("a") as config:
        config.write(f'[secrets.TOKEN]\nfrom = "file:{tmp_path / "canary"}"\ninject = "env"\n')
    (tmp_path / "canary").chmod(0o600)
    cli.ok("create", "box", "--image", "host", "--secret", "TOKEN", "--", "sleep", "1000")
    config = tmp_path / "ssh_config"
    config.write_bytes(cli.ok("ssh-config"))
    done = Ssh(cli, config).run("box.sandbox", 'echo "[$TOKEN]"; echo "${#TOKEN}"')
    assert done.stdout.splitlines()[1:] == [b"17"]
    assert b"canary" not in done.stdout + done.stderr


@pytest.fixture
def master(ssh: Ssh, box: str, tmp_path: Path) -> Iterator[list[str]]:
    """Options that go over one connection, which is open."""
    mux = ["-o", f"ControlPath={tmp_path / 'mux'}"]
    process = ssh.start(*mux, "-M", "-N", "box.sandbox")
    ssh.cli.until((tmp_path / "mux").exists, "the master did not come")
    yield [*mux, "-o", "ProxyCommand=none"]
    process.terminate()
    process.communicate(timeout=30)


def test_a_hundred_channels_on_one_connection(ssh: Ssh, master: list[str]) -> None:
    started = [ssh.start(*master, "box.sandbox", f"read line; echo $line {number}") for number in range(100)]
    ssh.cli.until(lambda: ssh.cli.ok("top", "box").count(b"read line") == 100, "they were not there at once")
    ended = [one.communicate(b"go\n", timeout=60)[0] for one in started]
    assert ended == [b"go %d\n" % number for number in range(100)]
    assert {row["outcome"] for row in ssh.rows("exec")} == {"ok"}


def test_the_sandbox_goes_while_the_connection_stays(ssh: Ssh, master: list[str]) -> None:
    assert ssh.run(*master, "box.sandbox", "true").returncode == 0
    running = ssh.start(*master, "box.sandbox", "echo on; sleep 1000")
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    ssh.cli.ok("rm", "box", "--force")
    out, err = running.communicate(timeout=60)
    assert (out, running.returncode) == (b"", 125)
    assert err.startswith(b"error: box ")
    done = ssh.run(*master, "box.sandbox", "true")
    assert done.returncode == 125
    assert done.stderr.startswith(b"error: ")


@pytest.mark.parametrize("whom", ["ssh", "proxy"])
def test_a_killed_client_or_proxy_leaves_nothing(ssh: Ssh, box: str, whom: str) -> None:
    running = ssh.start("box.sandbox", "echo on; setsid sleep 4241 & sleep 4242")
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    [proxy] = ssh.proxies()
    ssh.cli.until(lambda: ssh.cli.ok("top", "box").count(b"sleep 424") >= 2, "they did not start")
    if whom == "ssh":
        running.kill()
    else:
        os.kill(proxy, signal.SIGKILL)
    running.communicate(timeout=30)
    ssh.cli.until(lambda: not ssh.proxies(), "the proxy stayed")
    ssh.cli.until(lambda: b"sleep 424" not in ssh.cli.ok("top", "box"), "a process stayed in the guest")
    ssh.cli.ok("exec", "box", "--", "true")  # the next writer ends the rows of a killed console
    ended = [row["outcome"] for row in ssh.rows("exec") if row["actor"].startswith("ssh:")]
    assert ended == ["cancelled" if whom == "ssh" else "unknown"]


def test_a_command_that_is_too_long_is_told(ssh: Ssh, box: str) -> None:
    done = ssh.run("box.sandbox", "true", "#" + "x" * 100_000, "y" * 100_000)
    assert done.returncode == 126
    assert b"Argument list too long" in done.stderr
    assert ssh.run("box.sandbox", "exit 126").stderr == b""
