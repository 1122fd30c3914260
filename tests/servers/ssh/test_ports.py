"""Ports of a sandbox over the real OpenSSH client: carried through the gate, and nothing else is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.servers.ssh.backends import backend, box, cli, docker_engine
from tests.servers.ssh.conftest import Ssh

__all__ = ["backend", "box", "cli", "docker_engine"]

LISTENS = "until busybox cat /proc/net/tcp* | busybox grep -q ':1F40 .* 0A '; do busybox sleep 0.05; done"
ECHO = f"busybox nc -ll -p 8000 -e busybox cat & {LISTENS}; echo on; exec busybox sleep 900"
"""A server that sends back what it gets."""


@contextmanager
def connected(ssh: Ssh, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """An ssh that runs the server in the sandbox, and is told of nothing more."""
    process = ssh.start("-o", "ExitOnForwardFailure=yes", *words, "box.sandbox", ECHO)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"on\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)
        ssh.cli.until(lambda: not ssh.proxies(), "the proxy stayed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def echoed(sock: socket.socket, data: bytes) -> bytes:
    """What comes back of what is sent, read while it is sent."""
    sock.settimeout(60)
    if os.fork() == 0:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        os._exit(0)
    found = bytearray()
    while part := sock.recv(1 << 16):
        found += part
    os.wait()
    return bytes(found)


def listening(ssh: Ssh, port: int) -> None:
    def there() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    ssh.cli.until(there, "ssh does not listen")


def socks(port: int, name: bytes, wanted: int) -> tuple[socket.socket, int]:
    """A connection through ssh's SOCKS server, and the answer's code: 0 is yes."""
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.sendall(b"\x05\x01\x00")
    assert sock.recv(2) == b"\x05\x00"
    sock.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + wanted.to_bytes(2, "big"))
    answer = sock.recv(10)  # OpenSSH closes it for a refusal
    return sock, answer[1] if answer else 1


def test_a_port_is_carried_and_on_record(ssh: Ssh, box: str) -> None:
    data = os.urandom(500_000)
    local, dynamic = free_port(), free_port()
    with connected(ssh, "-L", f"{local}:localhost:8000", "-D", str(dynamic)):
        listening(ssh, local)
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", local), 30) as sock:
                assert echoed(sock, data) == data
        sock, code = socks(dynamic, b"127.0.0.1", 8000)
        with sock:
            assert code == 0
            assert echoed(sock, b"by SOCKS") == b"by SOCKS"
        through = subprocess.run(
            ssh.command("-W", "localhost:8000", "box.sandbox"), input=b"by -W", capture_output=True, check=False,
            timeout=60,
        )  # fmt: skip
        assert (through.returncode, through.stdout) == (0, b"by -W")
        assert b" ssh:" not in ssh.cli.ok("top", "box")
    rows = ssh.rows("forward")
    assert [(row["outcome"], row["actor"].partition(":")[0]) for row in rows] == [("ok", "ssh")] * 2
    shown = [ssh.cli.json("audit", "show", str(row["id"]))[0] for row in rows]
    assert [one["attempt"]["body"]["port"] for one in shown] == [8000, 8000]
    by_w, by_l = (one["end"]["body"] for one in shown)
    assert (by_w["connections"], by_w["bytes_in"], by_w["bytes_out"]) == (1, 5, 5)
    assert by_l["connections"] >= 3  # and what looked whether ssh listens
    assert by_l["bytes_out"] == 2 * len(data) + 8


@pytest.mark.parametrize("whom", ["ssh", "proxy"])
def test_a_killed_client_or_proxy_leaves_no_connection(ssh: Ssh, box: str, whom: str) -> None:
    local = free_port()
    process = ssh.start("-L", f"{local}:localhost:8000", "box.sandbox", ECHO)
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    listening(ssh, local)
    with socket.create_connection(("127.0.0.1", local), 30) as sock:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
        before = ssh.cli.ok("top", "box")
        assert b"8000" in before
        if whom == "ssh":
            process.kill()
        else:
            os.kill(ssh.proxies()[0], signal.SIGKILL)
        process.communicate(timeout=30)
    ssh.cli.until(lambda: not ssh.proxies(), "the proxy stayed")
    ssh.cli.ok("exec", "box", "--", "true")  # the next writer ends what a killed console left
    ssh.cli.until(lambda: b"8000" not in ssh.cli.ok("top", "box"), "a process stayed in the guest")
    assert [row["outcome"] for row in ssh.rows("forward")] == ["ok" if whom == "ssh" else "unknown"]


REFUSED = {
    "elsewhere": ("-W", "example.com:80", b"example.com is not reached through box: only its own ports are"),
    "the metadata service": ("-W", "169.254.169.254:80", b"169.254.169.254 is not reached through box"),
    "the machine's own address": ("-W", "127.0.0.2:80", b"127.0.0.2 is not reached through box"),
    "a name with control characters": ("-W", "a\x1b]0;x\x07b:80", b"is not reached through box"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_but_the_sandbox_is_reached(ssh: Ssh, box: str, case: str) -> None:
    *words, said = REFUSED[case]
    done = ssh.run(*map(str, words), "box.sandbox")
    assert done.returncode == 255
    assert b"open failed: administratively prohibited: sandbox-console: " in done.stderr
    assert said in done.stderr
    assert not {0x1B, 0x07} & set(done.stderr)
    assert not ssh.rows("forward")


def test_sockets_reverse_ways_keys_and_screens_are_refused_with_words(ssh: Ssh, box: str, tmp_path: Path) -> None:
    reverse = (("-R", "0:127.0.0.1:9"), ("-R", "/tmp/sock:127.0.0.1:9"))
    for words in reverse:
        done = ssh.run("-o", "ExitOnForwardFailure=yes", *words, "box.sandbox", "true")
        assert done.returncode == 255
        assert b"remote port forwarding failed" in done.stderr
        assert b"-R is refused: it would lead from box past its egress rules\n" in done.stderr
    agent = tmp_path / "agent"
    keeper = subprocess.Popen(["ssh-agent", "-D", "-a", agent], stdout=subprocess.DEVNULL)
    try:
        ssh.cli.until(agent.exists, "no agent")
        words = ("-A", "-Y", "-o", f"IdentityAgent={agent}", "box.sandbox", 'echo "[$SSH_AUTH_SOCK$DISPLAY]"')
        done = ssh.run(*words, env=os.environ | {"DISPLAY": ":9"})
    finally:
        keeper.kill()
        keeper.wait()
    assert done.stdout == b"[]\n"
    assert b"-A is refused: box must not use your keys\n" in done.stderr
    assert b"-X is refused: box must not see your screen\n" in done.stderr
    local = tmp_path / "local"
    with connected(ssh, "-L", f"{local}:/var/run/docker.sock") as process:
        with socket.socket(socket.AF_UNIX) as sock:
            ssh.cli.until(local.exists, "ssh does not listen")
            sock.connect(str(local))
            assert sock.recv(1) == b""
        assert process.stderr is not None
        assert b"/var/run/docker.sock is not reached: only ports of box are" in process.stderr.readline()


@pytest.mark.parametrize(
    ("config", "said"),
    [('deny = ["forward"]', b"the policy denies forward"), ('publish = "none"', b"does not allow published ports")],
)
def test_the_policy_is_obeyed(ssh: Ssh, box: str, config: str, said: bytes) -> None:
    path = ssh.cli.home / "config.toml"
    path.write_text(f"{path.read_text()}[policy]\n{config}\n")
    done = ssh.run("-W", "localhost:8000", "box.sandbox")
    assert done.returncode == 255
    assert said in done.stderr
    assert [row["outcome"] for row in ssh.rows("forward")] == ["denied"]


def test_a_port_without_a_server_is_told(ssh: Ssh, box: str) -> None:
    done = ssh.run("-W", "localhost:8123", "box.sandbox", stdin=b"x")
    assert b"box: nothing answered at port 8123\n" in done.stderr
    assert done.stdout == b""
