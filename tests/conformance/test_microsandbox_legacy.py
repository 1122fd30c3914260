"""The backend for legacy microsandbox servers against ``serve --microsandbox`` over bubblewrap: both ends are ours."""

from __future__ import annotations

import pytest
from tests.neighbours.test_old_client import CONFIG
from tests.servers.serving import Home, serving
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.microsandbox_legacy import LegacyProvider
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

TEXT = "the protocol carries lines of text: what is not UTF-8 is replaced"
WHOLE = "the protocol sends the output once the command has ended"
NO_CODE = "the protocol does not tell how a sandbox ended"
pytestmark = [requires("bubblewrap")]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("legacy") / "home")
    home.configure(CONFIG + "max_sandboxes = 500\nmax_calls = 100\n")
    key = home.token("conformance", "microsandbox")
    with serving(home, "--microsandbox", "--no-page", what="microsandbox") as server:
        yield server.url.rstrip("/"), key
    if names := home.names():
        home.run("rm", "--force", *names)


class TestMicrosandboxLegacy(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_bytes_that_are_no_text_come_through": TEXT,
        "test_a_character_cut_in_two_is_passed_on_in_two": WHOLE,
        "test_100_mb_come_through_in_bounded_memory": "this server keeps the first MiB of a command's output",
        "test_a_slow_reader_holds_the_guest_back": "a server reads all of a command's output",
        "test_ending_the_sandbox_ends_its_commands": "it ends the sandbox by a signal, which the protocol does not have",
        "test_kill_ends_the_whole_tree": WHOLE,
        "test_cpu_is_held_to_its_limit": "a server takes whole CPUs",
        "test_the_main_process_ends_with_its_code": NO_CODE,
        "test_an_end_by_itself_is_told": NO_CODE,
        "test_odd_names_are_kept[a-b_c.d]": "a server takes letters, digits, '-' and '_' in a name",
        "test_a_missing_image_leaves_nothing": "a server looks for the image at the start",
    }

    @pytest.fixture
    def another(self, served, tmp_path):
        url, key = served

        async def read(_: str) -> str:
            return key

        async def open_one():
            table = {"url": url, "key": "KEY", "no_network": True}
            settings = BackendSettings(tmp_path / "state", {"servers": {"ours": table}}, key=read)
            [backend] = LegacyProvider.backends(settings)
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
            "microsandbox_legacy",
            lambda name: SandboxSpec(name, image="microsandbox/python", command=("sleep", "1000")),
            another=another,
            own_kernel=True,  # its processes are not those of the console that asks
            no_walls="the walls are those of the server's sandboxes",
            flood_s=60.0,  # its server reads all of it, however busy the machine is
        )
