from __future__ import annotations

import os

import pytest
from tests.conformance.test_docker import leftovers
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.podman.backend import PodmanBackend
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

# Each request starts programs of Podman's, so on a loaded machine answers come too late for some checks.
ASKED = "CONFORMANCE_RESULTS" in os.environ
pytestmark = [
    requires("podman"),
    pytest.mark.slow,
    pytest.mark.skipif(not ASKED, reason="python -m tests.conformance.refresh podman asks it, for 8 minutes"),
]


class TestPodman(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_a_folder_comes_with_all_below_it": "Podman 4.3 follows a link that is the last part of a copied path",
        "test_a_guests_link_leads_to_nothing_of_this_host": "Podman 4.3 follows a link that is the last part of a copied path",
        "test_an_image_goes_out_and_comes_back": "Podman lists images by their full names, docker.io/library/NAME",
        "test_since_and_until_cut_by_time": "Podman tells the times of a log in whole seconds",
    }

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
