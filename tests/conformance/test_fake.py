from __future__ import annotations

import pytest

from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile
from sandbox_console.testing.fake_backend import FakeBackend


class TestFake(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_a_runtime_that_is_not_there_is_refused": "nothing runs in it, so that it takes a runtime of any name",
    }

    @pytest.fixture
    async def backend(self):
        backend = FakeBackend()
        await backend.open()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self):
        return Profile("fake", lambda name: SandboxSpec(name, command=("sleep", "1000")), posix_sh=False)
