"""The backend for A3S Box against a stand-in bridge over bubblewrap, made from A3S Box's SDK and its published source."""

from __future__ import annotations

import pytest
from tests.neighbours.a3s.bridge_stand_in import IMAGE, running
from tests.support.require import requires

from sandbox_console.backends.a3s import A3sProvider
from sandbox_console.backends.base import BackendSettings
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

LIMITS = "it is asked for; the stand-in enforces no limits"
IDS = "the runtime tells its ids of processes, not what they run"
GRACE = "the runtime takes no grace for a stop"
WHOLE = "the runtime sends the output once the command has ended"
pytestmark = [requires("bubblewrap"), requires("user")]


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    with running(tmp_path_factory.mktemp("a3s")) as (_, program):
        yield program


class TestA3s(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_memory_past_its_limit_is_refused": LIMITS,
        "test_processes_past_their_limit_are_refused": LIMITS,
        "test_fewer_processes_hold_at_once": LIMITS,
        "test_less_cpu_holds_at_once": LIMITS,
        "test_processes_are_the_main_one_and_those_beside_it": IDS,
        "test_they_have_their_own_pids_and_no_helper_among_them": IDS,
        "test_a_life_is_told_in_order": "the runtime tells events only of a sandbox that runs",
        "test_a_missing_image_leaves_nothing": "A3S Box looks for the image at the start",
        "test_bytes_that_are_no_text_are_kept": "the runtime keeps its log as text",
        "test_stop_lets_it_end_by_itself": GRACE,
        "test_kill_ends_the_whole_tree": WHOLE,
        "test_a_slow_reader_holds_the_guest_back": WHOLE,
        "test_ending_the_sandbox_ends_its_commands": "it ends the sandbox by a signal, which the runtime does not have",
    }

    async def test_cpu_is_held_to_its_limit(self, rig):  # a busy machine holds it as well, so it is not asked
        pytest.xfail(LIMITS)

    @pytest.fixture(scope="class")
    def state(self, tmp_path_factory):
        """What the console knows of its sandboxes, and the one that checks share."""
        return tmp_path_factory.mktemp("state"), []

    @pytest.fixture
    def another(self, binary, state):
        async def open_one():
            table = {"binary": str(binary)}
            [backend] = A3sProvider.backends(BackendSettings(state[0], {"runtimes": {"lab": table}}))
            await backend.open()
            return backend

        return open_one

    @pytest.fixture
    async def backend(self, another):
        backend = await another()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self, another, state):
        return Profile(
            "a3s",
            lambda name: SandboxSpec(name, image=IMAGE, command=("sleep", "1000")),
            another=another,
            lent=state[1],
            own_kernel=True,  # its processes are not those of the console that asks
            flood_s=60.0,  # the command ends meanwhile, also on a busy machine
            least_cpus=0.01,  # so small that even a busy machine does not hold a command to it
            no_walls="the walls are those of A3S Box",
            slow="the runtime answers with a whole output, and keeps 16 MiB of it",
        )
