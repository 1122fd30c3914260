"""The backend for OpenSandbox against the real opensandbox-server on a private dockerd, with a stand-in for execd."""

from __future__ import annotations

import pytest
from tests.neighbours.opensandbox import real_server
from tests.support.require import missing

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.opensandbox import OpenSandboxProvider
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

TEXT = "execd sends lines of text: what is not UTF-8 is replaced, and every line gets an end"
STORED = "execd stores a command's output before it sends it: 64 MiB are written though nobody reads them"
NO_END = "stop removes it from the server, and with it its exit code and its log"


@pytest.fixture(scope="module")
def server():
    for needed in ("docker", "opensandbox"):
        if reason := missing(needed):
            pytest.skip(f"{needed}: {reason}")
    with real_server.running() as (url, _):
        yield url


class TestOpenSandbox(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_a_neighbour_is_out_of_reach": "the server puts its sandboxes into one network",
        "test_no_network_but_the_loopback": "a sandbox is in the server's network, which has no way out in this test",
        "test_bytes_that_are_no_text_come_through": TEXT,
        "test_the_guest_sees_what_went_in": TEXT,
        "test_a_character_cut_in_two_is_passed_on_in_two": TEXT,
        "test_a_slow_reader_holds_the_guest_back": STORED,
        "test_closing_ends_the_whole_tree": "the stand-in for execd ends the process group of a shell, and no other",
        "test_bytes_that_are_no_text_are_kept": "the server gives the log as text",
        "test_a_long_line_is_whole": "with times, the engine gives a long line in pieces of 16 KiB, each with its own",
        "test_a_missing_image_leaves_nothing": "the server pulls the image at the start",
        "test_stop_lets_it_end_by_itself": NO_END,
        "test_stop_kills_after_the_grace": NO_END,
        "test_ending_the_sandbox_ends_its_commands": "it ends the sandbox by a signal, which the API does not have",
    }

    @pytest.fixture(scope="class")
    def state(self, tmp_path_factory):
        """What the console knows of its sandboxes, and the one that checks share: a start takes a second."""
        return tmp_path_factory.mktemp("state"), []

    @pytest.fixture
    def another(self, server, state):
        async def read(_: str) -> str:
            return real_server.KEY

        async def open_one():
            table = {"url": server, "key": "KEY", "no_network": True}
            settings = BackendSettings(state[0], {"servers": {"lab": table}}, key=read)
            [backend] = OpenSandboxProvider.backends(settings)
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
            "opensandbox",
            lambda name: SandboxSpec(name, image=real_server.IMAGE, command=("sleep", "1000"), memory_mib=256),
            another=another,
            lent=state[1],
            own_kernel=True,  # its processes are not those of the console that asks
            no_walls="the walls are those of the server's configuration",
            longest_s=61.0,  # the server takes none that is shorter than 60 s
            flood_s=60.0,  # what execd stores goes to a disk, which may be slow
            slow="each line passes a stand-in for execd in Python",
        )
