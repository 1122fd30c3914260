"""Engines at ssh://: the private engine behind a real sshd on loopback."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.docker.test_contexts import context
from tests.docker.test_remote import whole_life
from tests.support.engine import IMAGE
from tests.support.require import requires
from tests.support.sshd import running

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.contexts import resolve
from sandbox_console.backends.docker.ssh_tunnel import Address
from sandbox_console.errors import BackendUnreachable
from sandbox_console.model.event import HealthChanged
from sandbox_console.model.sandbox import HealthState

pytestmark = [requires("docker"), requires("sshd")]
USER = getpass.getuser()


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="sc-") as runtime:  # a short path, as /run/user/0 is
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        (tmp_path / "run").symlink_to(runtime)
        yield tmp_path


@pytest.fixture
def server(home):
    with running(home) as made:
        yield made


@pytest.fixture
async def far(home, server, docker_engine):
    server.trusted()
    context("far", f"ssh://{USER}@127.0.0.1:{server.port}{docker_engine.socket}")
    backend = DockerBackend("far")
    await backend.open()
    yield backend
    await backend.close()


async def reason(name):
    backend = DockerBackend(name)
    await backend.open()
    health = await backend.health()
    with pytest.raises(BackendUnreachable):
        await backend.list()
    await backend.close()
    assert not list(Path(os.environ["XDG_RUNTIME_DIR"]).iterdir())
    return health


async def test_a_whole_life_and_nothing_but_sockets_crosses(home, server, docker_engine, permit, unique, monkeypatch):
    monkeypatch.setenv("CANARY", "not-for-the-other-side")
    server.trusted()
    monkeypatch.setenv("DOCKER_HOST", f"ssh://{USER}@127.0.0.1:{server.port}{docker_engine.socket}")
    await whole_life(permit, unique())
    said = server.said()
    assert "direct-streamlocal@openssh.com" in said
    for request in ("req env", "req exec", "req shell", "CANARY"):
        assert request not in said


async def test_its_mounts_are_no_folders_of_this_host(far, docker_engine, unique, home):
    name = unique()
    docker_engine.docker("run", "-d", "--network", "none", "--name", name, "-v", f"{home}:/work", IMAGE, "sleep", "100")
    try:
        near = DockerBackend("near")
        context("near", docker_engine.url)
        assert str(home) in await near.shares()
        assert str(home) not in await far.shares()
        await near.close()
    finally:
        docker_engine.docker("rm", "-f", name)


async def test_the_local_socket_is_private_and_goes_with_the_backend(far, home):
    await far.health()
    (folder,) = (home / "run").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == ["docker.sock"]
    await far.close()
    assert not folder.exists()


async def test_what_a_killed_process_left_is_removed_by_the_next(home, server, docker_engine):
    server.trusted()
    context("far", f"ssh://{USER}@127.0.0.1:{server.port}{docker_engine.socket}")
    script = (
        "import asyncio, os\n"
        "from sandbox_console.backends.docker.backend import DockerBackend\n"
        "async def main():\n"
        "    backend = DockerBackend('far'); assert (await backend.health()).ok\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    (left,) = (home / "run").iterdir()
    other = home / "run/sandbox-console-ssh-1-alive"
    other.mkdir()
    backend = DockerBackend("far")
    assert (await backend.health()).ok
    assert not left.exists()
    assert other.exists()
    await backend.close()


async def lost_and_found(backend, lose, find):
    """The health that the loss is told by, then wait until it is healthy again."""
    told = asyncio.Queue()

    async def watch():
        async for event in backend.watch():
            if isinstance(event, HealthChanged):
                told.put_nowait(event.health)

    watching = asyncio.create_task(watch())
    try:
        async with asyncio.timeout(60):
            while not (await told.get()).ok:
                pass
            lose()
            while (health := await told.get()).ok:
                pass
            find()
            while not (await told.get()).ok:
                pass
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    return health


async def test_a_frozen_host_is_lost_and_comes_back(far, server):
    health = await lost_and_found(far, server.freeze, server.thaw)
    assert health.state is HealthState.UNREACHABLE
    await far.list()


async def test_a_cut_connection_is_made_again(far, server):
    await far.list()
    server.cut()
    await lost_and_found(far, server.cut, lambda: None)
    await far.list()


async def test_an_alias_of_ssh_config_with_a_jump(home, server, docker_engine):
    with running(home, "inner") as inner:
        server.trusted("jump")
        inner.trusted("Engine")
        (home / ".ssh/id_ed25519").rename(home / ".ssh/other_key")
        common = f"  HostName 127.0.0.1\n  User {USER}\n  IdentityFile {home}/.ssh/other_key\n"
        (home / ".ssh/config").write_text(
            f"Host jump\n{common}  Port {server.port}\n  HostKeyAlias jump\n"
            f"Host Engine\n{common}  Port {inner.port}\n  HostKeyAlias Engine\n  ProxyJump jump\n"
        )
        context("far", f"ssh://Engine{docker_engine.socket}")
        backend = DockerBackend("far")
        try:
            health = await backend.health()
            assert health.ok, health
        finally:
            await backend.close()
        assert "direct-tcpip" in server.said()
        assert "direct-streamlocal" in inner.said()


async def test_an_unknown_host_key_is_refused(server, docker_engine):
    context("far", f"ssh://{USER}@127.0.0.1:{server.port}{docker_engine.socket}")
    health = await reason("far")
    assert health.state is HealthState.UNREACHABLE
    assert "host key of 127.0.0.1" in health.reason
    assert health.hint.endswith(f"ssh -p {server.port} {USER}@127.0.0.1")
    assert "Accepted publickey" not in server.said()


async def test_a_refused_login_is_said(server, docker_engine, home):
    server.trusted()
    (home / ".ssh/id_ed25519").unlink()
    context("far", f"ssh://{USER}@127.0.0.1:{server.port}{docker_engine.socket}")
    health = await reason("far")
    assert "accepted no key of yours" in health.reason
    assert "BatchMode" in health.hint


async def test_a_host_without_an_engine_is_said(server, home):
    server.trusted()
    context("far", f"ssh://{USER}@127.0.0.1:{server.port}{home}/none.sock")
    health = await reason("far")
    assert f"no engine answers at 127.0.0.1:{home}/none.sock" in health.reason
    assert "group docker" in health.hint


async def test_forbidden_forwarding_is_said(home, docker_engine):
    with running(home, "strict", "AllowStreamLocalForwarding no") as server:
        server.trusted()
        context("far", f"ssh://{USER}@127.0.0.1:{server.port}{docker_engine.socket}")
        health = await reason("far")
    assert "sshd forwards no sockets" in health.reason
    assert "AllowStreamLocalForwarding" in health.hint


async def test_a_host_that_is_not_there_is_said(home):
    context("far", "ssh://127.0.0.1:1")
    health = await reason("far")
    assert health.reason.endswith("127.0.0.1 cannot be reached over ssh: connection refused"), health
    assert health.hint == "try it: ssh -p 1 127.0.0.1 true"
    context("nowhere", "ssh://no-such-host.invalid")
    health = await reason("nowhere")
    assert "cannot be reached over ssh: " in health.reason
    assert "Errno" not in health.reason


async def test_a_broken_ssh_config_is_said(home, server):
    (home / ".ssh/config").write_text("Port many\n")
    context("far", f"ssh://{USER}@127.0.0.1/x")
    health = await reason("far")
    assert health.state is HealthState.UNAVAILABLE
    assert "ssh configuration" in health.reason


@pytest.mark.parametrize("url", ["ssh://", "ssh://host:many", "ssh://user:word@host", "ssh://host?x=1"])
async def test_an_address_that_cannot_be_used_is_said(monkeypatch, url):
    monkeypatch.setenv("DOCKER_HOST", url)
    with pytest.raises(Exception, match="cannot be used"):
        resolve("default")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ssh://host", Address("host", None, None, "/var/run/docker.sock")),
        ("ssh://me@Host:22/", Address("Host", "me", 22, "/var/run/docker.sock")),
        ("ssh://me@[::1]:2222/run/user/1/docker.sock", Address("::1", "me", 2222, "/run/user/1/docker.sock")),
    ],
)
def test_addresses(url, address):
    assert Address.parse(url) == address
