"""What people use over ssh: rsync, git, scp, and an editor's long-lived server, against real sandboxes."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from tests.servers.ssh.backends import backend, box, cli, docker_engine
from tests.servers.ssh.conftest import Ssh
from tests.servers.ssh.test_ports import free_port, listening, socks
from tests.support.require import missing

__all__ = ["backend", "box", "cli", "docker_engine"]

NAMES = ("plain", "with space", "line\nfeed", "-'\"$(id)漢\x1b[31m")


def run(words: list[str], **env: str) -> subprocess.CompletedProcess[bytes]:
    given = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"} | env
    return subprocess.run(words, env=given, capture_output=True, check=False, timeout=120)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files with odd names and modes, one of them large."""
    folder = tmp_path / "tree"
    (folder / "sub/empty").mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(name)
    (folder / "sub/large").write_bytes(os.urandom(20_000_000))
    for name, mode in (("plain", 0o600), ("with space", 0o755), ("sub/large", 0o440), ("sub", 0o700)):
        (folder / name).chmod(mode)
    return folder


def found(folder: Path) -> dict[str, tuple[int, str]]:
    """Every path below a folder, with its mode and what is in it."""
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.stat().st_mode),
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder",
        )
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("program", [pytest.param("scp", marks=pytest.mark.slow), "rsync"])
def test_a_tree_goes_in_and_comes_back(
    ssh: Ssh, box: str, backend: str, tree: Path, tmp_path: Path, program: str
) -> None:
    if program == "scp":
        words = ["scp", "-F", str(ssh.config), "-rpq"]
        there, back = "box.sandbox:/tmp/there", "box.sandbox:/tmp/there"
    else:
        if reason := missing("shell-tools"):
            pytest.skip(reason)
        words = ["rsync", "-a", "-e", f"ssh -F {ssh.config}"]
        there, back = "box.sandbox:/tmp/there/", "box.sandbox:/tmp/there/"
    source = f"{tree}/" if program == "rsync" else str(tree)
    done = run([*words, source, there])
    if program == "rsync" and backend == "docker":  # the image has none
        assert done.returncode != 0
        assert b"sandbox-console: box has no rsync, which rsync needs there" in done.stderr
        return
    assert (done.returncode, done.stdout) == (0, b""), done
    done = run([*words, back, f"{tmp_path}/back"])
    assert done.returncode == 0, done
    assert found(tmp_path / "back") == found(tree)


@pytest.mark.slow
def test_git_clones_and_pushes(ssh: Ssh, box: str, backend: str, tmp_path: Path) -> None:
    name = {"GIT_SSH_COMMAND": f"ssh -F {ssh.config}"}
    for role in ("AUTHOR", "COMMITTER"):
        name |= {f"GIT_{role}_NAME": "a", f"GIT_{role}_EMAIL": "a@b"}
    if backend == "docker":  # the image has no git
        done = run(["git", "clone", "-q", "box.sandbox:/tmp/r", f"{tmp_path}/r"], **name)
        assert b"sandbox-console: box has no git-upload-pack, which git needs there" in done.stderr
        return
    ssh.cli.ok("exec", box, "--", "git", "init", "-q", "--bare", "/tmp/r")
    for script in (
        "git clone -q box.sandbox:/tmp/r one",
        "cd one && head -c 3000000 /dev/urandom >big && git add big && git commit -qm one && git push -q origin HEAD",
        "git clone -q box.sandbox:/tmp/r two",
    ):
        done = run(["sh", "-ec", f"cd {tmp_path}; {script}"], **name)
        assert done.returncode == 0, done
    assert (tmp_path / "two/big").read_bytes() == (tmp_path / "one/big").read_bytes()


SERVER = """
cd /tmp
echo "$$" >pid
printf 'HTTP/1.0 200 OK\\r\\n\\r\\nready' >answer
busybox nc -ll -p 8400 -e busybox cat answer >/dev/null 2>&1 &
until busybox cat /proc/net/tcp* | busybox grep -q ':20D0 .* 0A '; do busybox sleep 0.05; done
echo "listeningOn==8400=="
busybox cat
"""
"""What Remote-SSH sends to a shell of the far end, cut down: install, start a server, tell its port, and stay."""


def test_a_stand_in_for_an_editor(ssh: Ssh, box: str, tmp_path: Path) -> None:
    """Remote-SSH's way, without Remote-SSH, which no registry of packages has.

    One connection with a SOCKS server carries a shell that reads a script from stdin and stays, and commands beside it.
    """
    local, control = free_port(), tmp_path / "c"
    shared = ("-o", f"ControlPath={control}")
    editor = ssh.start("-T", "-M", *shared, "-D", str(local), "-o", "ConnectTimeout=15", "box.sandbox", "sh")
    assert editor.stdin is not None
    assert editor.stdout is not None
    try:
        editor.stdin.write(SERVER.encode())
        editor.stdin.flush()
        assert editor.stdout.readline() == b"listeningOn==8400==\n"
        listening(ssh, local)
        for _ in range(3):
            sock, code = socks(local, b"localhost", 8400)
            with sock:
                assert code == 0
                assert sock.makefile("rb").read().endswith(b"ready")
        _, code = socks(local, b"update.example.com", 443)
        assert code != 0
        sides = [ssh.start("-T", *shared, "box.sandbox", f"cat; exit {n}") for n in range(5)]
        for n, side in enumerate(sides):
            out, _ = side.communicate(b"%d" % n, timeout=60)
            assert (out, side.returncode) == (b"%d" % n, n)
        assert len(ssh.proxies()) == 1
    finally:
        editor.kill()
        editor.communicate(timeout=30)
    ssh.cli.until(lambda: not ssh.proxies(), "the proxy stayed")
    ssh.cli.until(lambda: b"8400" not in ssh.cli.ok("top", "box"), "the server stayed in the guest")
    ssh.cli.until(
        lambda: not any(row["outcome"] == "in flight" for row in ssh.cli.json("audit", "ls")), "a row is open"
    )
    assert {row["outcome"] for row in ssh.rows("forward")} == {"ok"}
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", local)) != 0
