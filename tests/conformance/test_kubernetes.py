from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.kubernetes import IMAGE, namespace
from tests.support.require import requires

from sandbox_console.backends.kubernetes.backend import KubernetesBackend
from sandbox_console.backends.kubernetes.scope import Scope
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

pytestmark = [requires("kubernetes")]


@pytest.fixture(scope="module")
def space():
    with namespace() as name:
        yield name


class TestKubernetes(BackendConformance):
    known_gaps = {}  # noqa: RUF012 - a constant of the class

    @pytest.fixture
    def another(self, space, tmp_path):
        file = Path(os.environ["KUBECONFIG"])

        async def open_one():
            backend = KubernetesBackend(Scope("test", space, kubeconfig=file, network_policy=True), tmp_path / "state")
            await backend.open()
            return backend

        return open_one

    @pytest.fixture
    async def backend(self, another):
        backend = await another()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self, another):
        return Profile(
            "kubernetes",
            lambda name: SandboxSpec(name, image=IMAGE, command=("sleep", "1000")),
            another=another,
            own_kernel=True,  # the node's pids are not those of this machine's /proc in every set-up
            slow="each byte passes the API server and the kubelet, on two processors",
            longest_s=3.0,
        )
