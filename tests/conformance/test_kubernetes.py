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

OPEN = "the network of the test cluster enforces no NetworkPolicy, though the test says that it does"
NAMES = "Kubernetes takes a-z, 0-9 and '-' in a name"
POD_GONE = "a stopped Sandbox has no Pod, and with the Pod went its exit code and its log"
NO_END = "Kubernetes tells no event when a container ends: it is in the state of its Pod"
pytestmark = [requires("kubernetes")]


@pytest.fixture(scope="module")
def space():
    with namespace() as name:
        yield name


class TestKubernetes(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_a_neighbour_is_out_of_reach": OPEN,
        "test_no_network_but_the_loopback": "a Pod has an address; a NetworkPolicy decides what it reaches",
        "test_a_missing_image_leaves_nothing": "a node pulls the image at the start, and the sandbox is then failed",
        "test_a_life_is_told_in_order": NO_END,
        "test_following_tells_what_comes": NO_END,
        "test_stop_lets_it_end_by_itself": POD_GONE,
        "test_stop_kills_after_the_grace": POD_GONE,
        "test_ending_the_sandbox_ends_its_commands": "it ends the sandbox by a signal, which Kubernetes does not send",
        "test_a_long_line_is_whole": "with times, a node gives a long line in pieces of 16 KiB, each with its own",
        "test_odd_names_are_kept[a-b_c.d]": NAMES,
        "test_odd_names_are_kept[UPPER]": NAMES,
    }

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
