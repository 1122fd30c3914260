from __future__ import annotations

import pytest
from tests.conformance.test_docker import leftovers
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.podman.backend import PodmanBackend
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

pytestmark = [requires("podman"), pytest.mark.slow]


class TestPodman(BackendConformance):
    @pytest.fixture
    def another(self, podman_engine, monkeypatch, tmp_path):
        monkeypatch.setenv("CONTAINER_HOST", podman_engine.url)

        async def open_one():
            backend = PodmanBackend("default", tmp_path / "state")
            await backend.open()
            return backend

        return open_one

    @pytest.fixture
    async def backend(self, another):
        backend = await another()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self, another, podman_engine, tmp_path):
        return Profile(
            "podman",
            lambda name: SandboxSpec(name, image=IMAGE, command=("sleep", "1000")),
            another=another,
            scratch="/home/user",  # /tmp is in memory and has 64 MB
            disk=(podman_engine.data / "overlay-containers",),
            leftovers=lambda: leftovers(podman_engine, tmp_path / "state"),
            runtime="runc",
        )
