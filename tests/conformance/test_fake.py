from __future__ import annotations

import pytest

from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile
from sandbox_console.testing.fake import FakeBackend


class TestFake(BackendConformance):
    @pytest.fixture
    async def backend(self):
        backend = FakeBackend()
        await backend.open()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self):
        return Profile("fake", lambda name: SandboxSpec(name, command=("sleep", "1000")), posix_sh=False)
