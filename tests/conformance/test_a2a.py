"""The backend for a2a runtimes against another console's ``serve --api`` over bubblewrap."""

from __future__ import annotations

import pytest
from tests.servers.serving import Home, serving
from tests.support.require import requires

from sandbox_console.backends.a2a import A2aProvider
from sandbox_console.backends.base import BackendSettings
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

CONFIG = """
[backends.docker]
enabled = false
[backends.podman]
enabled = false
[backends.microsandbox]
enabled = false
[templates.plain]
image = "host"
limits = "best-effort"
[api]
backend = "bubblewrap"
grants = "optional"
template = "plain"
images = ["*"]
max_sandboxes = 500
max_per_bucket = 500
max_calls = 100
"""
TEXT = "the interface carries text: what is not UTF-8 is replaced"
MAIN = "the runtime chooses the main process"
pytestmark = [requires("bubblewrap")]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("runtime") / "home")
    home.configure(CONFIG)
    key = home.token("conformance", "api")
    with serving(home, "--api", "--no-page") as server:
        yield server.url.rstrip("/"), key
    if names := home.names():
        home.run("rm", "--force", *names)


class TestA2a(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_bytes_that_are_no_text_come_through": TEXT,
        "test_a_neighbour_is_out_of_reach": MAIN,
        "test_100_mb_come_through_in_bounded_memory": "a runtime keeps the first MiB of a command's output",
        "test_the_main_process_ends_with_its_code": MAIN,
        "test_a_slow_reader_holds_the_guest_back": "a runtime reads all of a command's output",
        "test_ending_the_sandbox_ends_its_commands": "it ends the sandbox by a signal, which the interface does not have",
        "test_kill_ends_the_whole_tree": "the interface sends the output once the command has ended",
        "test_an_end_by_itself_is_told": MAIN,
        "test_no_process_of_it_is_left": MAIN,
        "test_env_adds_to_the_sandboxs_own": "the interface sends a sandbox no variables",
        "test_its_spec_comes_back_as_asked": "the interface sends a sandbox no variables",
        "test_a_missing_image_leaves_nothing": "a runtime looks for the image at the start",
    }

    @pytest.fixture
    def another(self, runtime, tmp_path):
        url, key = runtime

        async def read(_: str) -> str:
            return key

        async def open_one():
            table = {"url": url, "key": "KEY", "no_network": True}
            settings = BackendSettings(tmp_path / "state", {"servers": {"other": table}}, key=read)
            [backend] = A2aProvider.backends(settings)
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
            "a2a",
            lambda name: SandboxSpec(name, image="host"),
            another=another,
            own_kernel=True,  # its processes are not those of the console that asks
            no_walls="the walls are those of the runtime's sandboxes",
            flood_s=60.0,  # its server reads all of it, however busy the machine is
        )
