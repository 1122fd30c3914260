"""A file that a login over ssh reads or runs lies where a guest writes: the guest could choose programs and servers."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from tests.docker.test_ssh import USER, home
from tests.support.require import requires
from tests.support.sshd import running

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker.failures import GuestsEngine
from sandbox_console.backends.docker.provider import DockerProvider
from sandbox_console.errors import BackendUnreachable
from sandbox_console.hostfs.guest_writable import GuestFolders

__all__ = ["home"]


@pytest.fixture
def place(home, monkeypatch):
    """A home with an ssh folder, and a workspace with a program of a guest's that says it ran."""
    for name in ("ws", "own", ".ssh"):
        (home / name).mkdir()
    (home / "ws/connect").write_text(f"#!/bin/sh\necho >> {home}/own/ran\n")
    (home / "ws/connect").chmod(0o755)
    (home / "ws/config").write_text(f"Host *\n  ProxyCommand {home}/ws/connect\n")
    (home / ".ssh/config").write_text("")
    monkeypatch.chdir(home)
    monkeypatch.setenv("DOCKER_HOST", "ssh://somebody@far.example:9")
    return home


def configured(place, text):
    (place / ".ssh/config").write_text(text.format(place))


def linked(place, name, to):
    (place / ".ssh" / name).unlink(missing_ok=True)
    (place / ".ssh" / name).symlink_to(place / to)


WAYS = {
    "config": lambda at: linked(at, "config", "ws/config"),
    "folder": lambda at: ((at / ".ssh").rename(at / "ws/ssh"), (at / ".ssh").symlink_to(at / "ws/ssh")),
    "known_hosts": lambda at: linked(at, "known_hosts", "ws/known_hosts"),
    "a key": lambda at: linked(at, "id_ed25519", "ws/key"),
    "include": lambda at: configured(at, "Include {}/ws/conf*\n"),
    "include in another's block": lambda at: configured(at, "Host far.*\n Include={}/ws/config\n"),
    "include of a link": lambda at: (configured(at, "Include more\n"), linked(at, "more", "ws/config")),
    "include of an include": lambda at: (
        configured(at, "Include more\n"), (at / ".ssh/more").write_text(f"Include {at}/ws/config"),
    ),
    "IdentityFile": lambda at: configured(at, "Host far.example\n IdentityFile {}/ws/key\n"),
    "IdentityFile of the user": lambda at: configured(at, "Host *\n IdentityFile {}/ws/%r\n"),
    "CertificateFile": lambda at: configured(at, "CertificateFile {}/ws/cert\n"),
    "UserKnownHostsFile": lambda at: configured(at, "UserKnownHostsFile {}/own/a {}/ws/known\n".replace("{}", str(at))),
    "ProxyCommand": lambda at: configured(at, "ProxyCommand {}/ws/connect %h\n"),
    "ProxyCommand by a relative path": lambda at: configured(at, "ProxyCommand ws/connect %h\n"),
    "IdentityAgent": lambda at: configured(at, "IdentityAgent {}/ws/agent\n"),
    "a jump's key": lambda at: configured(at, "Host far*\n ProxyJump a@jump:2\nHost jump\n IdentityFile {}/ws/key\n"),
}  # fmt: skip


def backend(place, folder="ws"):
    ground = GuestFolders.of([str(place / folder)])
    [found] = DockerProvider.backends(BackendSettings(place / "state", {}, lambda: ground))
    return found


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_of_a_guests_is_used_to_log_in(place, way):
    (place / "ws/known_hosts").write_text("")
    (place / "ws/key").write_text("")
    WAYS[way](place)
    docker = backend(place)
    try:
        with pytest.raises(GuestsEngine) as refused:
            await docker.list()
    finally:
        await docker.close()
    assert str(place / "ws") in refused.value.message
    assert not (place / "own/ran").exists()


@pytest.mark.parametrize(
    "text", ["Host other\n IdentityFile {}/ws/key\n", "ProxyJump none\nIdentityAgent none\n", '"x']
)
async def test_what_this_login_does_not_use_is_no_reason(place, text):
    configured(place, text)
    docker = backend(place)
    try:
        with pytest.raises(BackendUnreachable) as failed:
            await docker.list()
    finally:
        await docker.close()
    assert not isinstance(failed.value, GuestsEngine)


@requires("docker")
@requires("sshd")
async def test_a_login_beside_a_guest_works(home, docker_engine, monkeypatch):
    (home / "ws").mkdir()
    with running(home) as server:
        server.trusted()
        monkeypatch.setenv("DOCKER_HOST", f"ssh://{USER}@127.0.0.1:{server.port}{docker_engine.socket}")
        docker = backend(home)
        try:
            async with asyncio.timeout(20):
                await docker.list()
        finally:
            await docker.close()


def test_a_host_block_is_not_put_where_a_guest_writes(place, monkeypatch):
    """Whoever writes ssh's configuration chooses a program that ssh runs."""
    from sandbox_console.errors import Conflict
    from sandbox_console.servers.ssh.host_block import write

    ground = GuestFolders.of([str(place / "ws")])
    for name in ("config", "new"):
        linked(place, "config", f"ws/{name}")
        before = subprocess.run(["find", place / "ws", "-ls"], capture_output=True, check=True).stdout
        with pytest.raises(Conflict, match="ssh runs the programs that it names"):
            write("Host x\n", place / ".ssh/config", ground)
        assert subprocess.run(["find", place / "ws", "-ls"], capture_output=True, check=True).stdout == before
