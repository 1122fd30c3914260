"""The backend for Daytona against a stand-in over bubblewrap, made from Daytona's published API."""

from __future__ import annotations

import pytest
from tests.neighbours.hosted.daytona_stand_in import KEY, SNAPSHOT, Daytona
from tests.neighbours.hosted.threaded import served
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.daytona import DaytonaProvider
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

MAIN = "the snapshot has the entrypoint"
WHOLE = "the toolbox sends the output once the command has ended"
pytestmark = [requires("bubblewrap"), requires("user")]


@pytest.fixture(scope="module")
def server():
    daytona = Daytona()
    with served(daytona.app()) as url:
        yield url
    daytona.end()


class TestDaytona(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_no_process_of_it_is_left": MAIN,
        "test_a_neighbour_is_out_of_reach": MAIN,
        "test_an_end_by_itself_is_told": MAIN,
        "test_lines_come_in_order_and_stay_after_the_end": MAIN,
        "test_tail_gives_the_last_lines": MAIN,
        "test_since_and_until_cut_by_time": MAIN,
        "test_follow_gives_new_lines_and_ends_with_the_sandbox": MAIN,
        "test_following_can_be_cancelled": MAIN,
        "test_a_long_line_is_whole": MAIN,
        "test_following_again_after_a_restart_loses_and_repeats_nothing": MAIN,
        "test_a_last_line_without_its_end_is_there": MAIN,
        "test_bytes_that_are_no_text_are_kept": MAIN,
        "test_stop_lets_it_end_by_itself": MAIN,
        "test_stop_kills_after_the_grace": MAIN,
        "test_the_main_process_ends_with_its_code": MAIN,
        "test_a_slow_reader_holds_the_guest_back": "the command writes into a file of the guest, which nobody holds back",
        "test_kill_ends_the_whole_tree": WHOLE,
        "test_ending_the_sandbox_ends_its_commands": "it ends the sandbox by a signal, which the API does not have",
        "test_a_missing_image_leaves_nothing": "Daytona looks for the snapshot at the start",
    }

    @pytest.fixture(scope="class")
    def state(self, tmp_path_factory):
        """What the console knows of its sandboxes, and the one that checks share."""
        return tmp_path_factory.mktemp("state"), []

    @pytest.fixture
    def another(self, server, state):
        async def read(_: str) -> str:
            return KEY

        async def open_one():
            table = {"url": f"{server}/api", "toolbox": f"{server}/toolbox", "key": "KEY"}
            [backend] = DaytonaProvider.backends(BackendSettings(state[0], {"servers": {"lab": table}}, key=read))
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
            "daytona",
            lambda name: SandboxSpec(name, image=SNAPSHOT),
            another=another,
            lent=state[1],
            own_kernel=True,  # its processes are not those of the console that asks
            no_walls="the walls are those of Daytona's runners",
            slow="each piece passes a stand-in for the toolbox in Python",
            flood_s=60.0,  # the command writes to a disk, which may be slow
        )
