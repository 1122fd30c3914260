from __future__ import annotations

import pytest
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

pytestmark = requires("bubblewrap")


class TestBubblewrap(BackendConformance):
    @pytest.fixture
    def another(self, tmp_path):
        async def open_one():
            [backend] = BubblewrapProvider.backends(BackendSettings(tmp_path / "bubblewrap"))
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
            "bubblewrap", lambda name: SandboxSpec(name, image="host", command=("sleep", "1000")), another=another
        )
