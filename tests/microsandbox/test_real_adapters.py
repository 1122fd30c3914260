"""Agents of a2a_pack and harnesses of OpenEnv on real microVMs, by the same adapters as on the other backends."""

from __future__ import annotations

import pytest
from tests.library.test_a2a import Agent
from tests.library.test_openenv import Harness
from tests.support.microimage import IMAGE
from tests.support.microvms import PATIENCE_S, folder, microsandbox_home
from tests.support.require import requires

from sandbox_console import open_console, sync
from sandbox_console.adapters.a2a import SandboxClient
from sandbox_console.adapters.openenv import SandboxBackend
from sandbox_console.service.reads import fleet

__all__ = ["folder", "microsandbox_home"]

pytestmark = requires("microsandbox")


@pytest.fixture(autouse=True)
def home(folder, monkeypatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(folder / "state"))
    monkeypatch.setattr(fleet, "ANSWER_S", PATIENCE_S)  # emulated, a list may take longer than a backend is given


def test_a_harness_of_openenv_runs_on_it() -> None:
    with sync.open_console(backend="microsandbox") as console:
        assert Harness(SandboxBackend(console, image=IMAGE, memory_mib=128)).run("do it\n") == "do it\nv w\n"
        assert list(console.list()[0]) == []


async def test_an_agent_of_a2a_pack_runs_on_it() -> None:
    async with open_console(backend="microsandbox") as console:
        client = SandboxClient(console, images={"python:*": IMAGE})
        assert await Agent().local_invoke("count", sandbox=client, text="three short words") == 3
        assert await client.list() == []
