"""Several contexts of one user at once: a host each in the list, and no concern of one another."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess

import pytest
from tests.docker.test_remote import both_sides, certificates, relay
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker import DockerProvider
from sandbox_console.errors import BackendUnreachable, ConfigError
from sandbox_console.model.event import Changed, HealthChanged, Listed
from sandbox_console.model.sandbox import HealthState, SandboxRef
from sandbox_console.service import Config, open_console
from sandbox_console.service.bootstrap import make_backends
from sandbox_console.service.paths import Paths

__all__ = ["certificates"]

pytestmark = requires("docker")

WAIT_S = 60


def context(name, host, files=None):
    tls = "" if files is None else "".join(f",{one}={files}/{one}.pem" for one in ("ca", "cert", "key"))
    words = ["docker", "context", "create", name, "--docker", f"host={host}{tls}"]
    subprocess.run(words, check=True, capture_output=True)


class Seen:
    """What one console tells, in the order told."""

    def __init__(self, events):
        self.told = []
        self._task = asyncio.ensure_future(self._run(events))

    async def _run(self, events):
        async for event in events:
            self.told.append(event)

    async def first(self, wanted):
        async with asyncio.timeout(WAIT_S):
            while (found := next(filter(wanted, self.told), None)) is None:
                assert not self._task.done()
                await asyncio.sleep(0.02)
        return found

    async def close(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def healthy(host, ok):
    return lambda event: isinstance(event, HealthChanged) and event.health.host == host and event.health.ok is ok


async def test_each_context_is_a_host_and_none_waits_for_another(docker_engine, unique, monkeypatch, certificates, tmp_path):  # fmt: skip
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    name = unique()
    container = docker_engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sleep", "1000")
    here, there = (SandboxRef("docker", host, container) for host in ("near", "far"))
    async with contextlib.AsyncExitStack() as wire:
        url = await wire.enter_async_context(relay(docker_engine.socket, both_sides(certificates)))
        context("near", docker_engine.url)
        context("far", url, certificates)
        context("old", "ssh://user@127.0.0.1:1")
        options = {"contexts": ["near", "far", "old"]}
        backends = DockerProvider.backends(BackendSettings(tmp_path / "state", options))
        async with open_console(Config(), backends=backends) as console:
            rows, healths = await console.list()
            assert {row.ref for row in rows if row.name == name} == {here, there}
            assert {one.host: one.state for one in healths} == {
                "near": HealthState.OK, "far": HealthState.OK, "old": HealthState.UNREACHABLE,
            }  # fmt: skip
            assert (await console.find(f"docker/far/{container}")).ref == there
            seen = Seen(console.watch())
            for host in ("near", "far"):
                await seen.first(lambda event, host=host: isinstance(event, Listed) and event.host == host)
            await wire.aclose()
            await seen.first(healthy("far", False))
            seen.told.clear()
            docker_engine.docker("pause", name)
            changed = await seen.first(lambda event: isinstance(event, Changed) and event.sandbox.ref == here)
            assert str(changed.sandbox.status) == "paused"
            assert (await console.inspect(here)).status == "paused"
            with pytest.raises(BackendUnreachable, match="'far'"):
                await console.inspect(there)
            assert not [one for one in seen.told if isinstance(one, HealthChanged) and one.health.host == "near"]
            seen.told.clear()
            port = int(url.rpartition(":")[2])
            await wire.enter_async_context(relay(docker_engine.socket, both_sides(certificates), port))
            await seen.first(healthy("far", True))
            listed = await seen.first(lambda event: isinstance(event, Listed) and event.host == "far")
            assert there in {row.ref for row in listed.sandboxes}
            await seen.close()
    docker_engine.docker("rm", "-f", name)


def test_one_context_can_be_asked_for(tmp_path):
    paths = Paths(tmp_path / "config.toml", tmp_path / "state")
    config = Config(backends={"docker": {"contexts": ["near", "far"]}})
    assert [one.host for one in make_backends(config, paths, "docker")] == ["near", "far"]
    assert [one.host for one in make_backends(config, paths, "docker/far")] == ["far"]
    with pytest.raises(ConfigError, match="docker has no host 'fat'") as caught:
        make_backends(config, paths, "docker/fat")
    assert caught.value.hint == "there is: docker/near, docker/far"
