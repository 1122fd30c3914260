"""What leads to an engine lies where a guest writes: the guest could pretend to be the engine."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading

import pytest

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker.failures import GuestsEngine
from sandbox_console.backends.docker.provider import DockerProvider
from sandbox_console.backends.podman.provider import PodmanProvider
from sandbox_console.errors import BackendUnreachable
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.service import Config, open_console
from sandbox_console.service.reads import shared_folders


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in ("ws/.docker", "own", "home/.docker"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "CONTAINER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fake(place):
    """A guest's engine: whether anybody has connected to it."""
    server, calls = socket.socket(socket.AF_UNIX), threading.Event()
    server.bind("ws/engine.sock")
    server.listen()

    def run():
        try:
            server.accept()[0].close()
        except OSError:
            return
        calls.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield calls
    server.shutdown(socket.SHUT_RDWR)
    thread.join()
    server.close()


def context(folder, url):
    digest = hashlib.sha256(b"theirs").hexdigest()
    meta = folder / "contexts/meta" / digest
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": "theirs", "Endpoints": {"docker": {"Host": url}}}))
    (folder / "config.json").write_text('{"currentContext": "theirs"}')


def by_host(place, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}/ws/engine.sock")


def by_a_link(place, monkeypatch):
    (place / "own/engine.sock").symlink_to(place / "ws/engine.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}/own/engine.sock")


def by_config(place, monkeypatch):
    context(place / "ws/.docker", f"unix://{place}/ws/engine.sock")
    monkeypatch.setenv("DOCKER_CONFIG", str(place / "ws/.docker"))


def by_config_for_another_engine(place, monkeypatch):
    context(place / "ws/.docker", "tcp://127.0.0.1:9")
    monkeypatch.setenv("DOCKER_CONFIG", str(place / "ws/.docker"))


def by_a_context(place, monkeypatch):
    context(place / "home/.docker", f"unix://{place}/ws/engine.sock")


def by_a_linked_config(place, monkeypatch):
    (place / "home/.docker").rmdir()
    (place / "home/.docker").symlink_to(place / "ws/.docker")
    context(place / "ws/.docker", f"unix://{place}/ws/engine.sock")


def by_podman(place, monkeypatch):
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{place}/ws/engine.sock")


WAYS = [by_host, by_a_link, by_config, by_config_for_another_engine, by_a_context, by_a_linked_config, by_podman]


@pytest.mark.parametrize("way", WAYS)
async def test_it_is_refused_before_anything_is_sent(place, fake, monkeypatch, way):
    way(place, monkeypatch)
    provider = PodmanProvider if way is by_podman else DockerProvider
    ground = GuestFolders.of([str(place / "ws")])
    [backend] = provider.backends(BackendSettings(place / "state", {}, lambda: ground))
    try:
        with pytest.raises(GuestsEngine) as refused:
            await backend.list()
        health = await backend.health()
    finally:
        await backend.close()
    assert refused.value.code == "guests_engine"
    assert str(place / "ws") in refused.value.message
    assert not health.ok
    assert "which a sandbox can write" in health.reason
    assert not fake.is_set()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["meta.json", "ca.pem", "podman-connections.json", "containers.conf"])
async def test_a_pipe_in_place_of_a_file_holds_nothing_up(place, monkeypatch, what):
    """The files were read before it was checked whose they are, and a pipe has no end."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "home"))
    (place / "home/containers").symlink_to(place / "ws")
    context(place / "home/.docker", "tcp://127.0.0.1:9")
    digest = hashlib.sha256(b"theirs").hexdigest()
    tls = place / "home/.docker/contexts/tls" / digest / "docker"
    tls.mkdir(parents=True)
    at = {"meta.json": place / "home/.docker/contexts/meta" / digest / what, "ca.pem": tls / what}.get(
        what, place / "ws" / what
    )
    at.unlink(missing_ok=True)
    os.mkfifo(at)
    podman = what.startswith(("podman", "containers"))
    provider, options = (
        (PodmanProvider, {"connections": ["theirs"]}) if podman else (DockerProvider, {"contexts": ["theirs"]})
    )
    [backend] = provider.backends(
        BackendSettings(place / "state", options, lambda: GuestFolders.of([str(place / "ws")]))
    )
    try:
        health = await backend.health()
    finally:
        await backend.close()
    assert not health.ok
    assert "it is not a file" in health.reason


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_the_clis_config_does_not_hold_the_console_up(place, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(place / "ws/.docker"))
    os.mkfifo(place / "ws/.docker/config.json")
    assert [one.host for one in DockerProvider.backends(BackendSettings(place / "state", {}))] == ["default"]


async def test_one_that_no_guest_can_write_is_asked(place, fake, monkeypatch):
    by_host(place, monkeypatch)
    ground = GuestFolders.of([str(place / "own")])
    [backend] = DockerProvider.backends(BackendSettings(place / "state", {}, lambda: ground))
    try:
        with pytest.raises(BackendUnreachable) as failed:
            await backend.list()
    finally:
        await backend.close()
    assert not isinstance(failed.value, GuestsEngine)
    assert fake.is_set()


async def test_the_console_knows_the_guests_by_what_it_has_given(place, fake, monkeypatch):
    by_config(place, monkeypatch)
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(place / "console"))
    (place / "console/state").mkdir(parents=True, mode=0o700)
    shared_folders.change(place / "console/state", lambda known: {"bubblewrap/local": [str(place / "ws")]})
    async with open_console(Config(), only_backend="docker") as console:
        [health] = await console.health()
    assert "which a sandbox can write" in health.reason
    assert not fake.is_set()
