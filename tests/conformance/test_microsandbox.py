from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.microimage import microsandbox_home, spec_fields
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.microsandbox import MicrosandboxProvider, runs
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

__all__ = ["microsandbox_home"]

pytestmark = requires("microsandbox")


def leftovers(home: Path, state: Path) -> set[str]:
    """Machines that run, and what the home and the state have of sandboxes."""
    files = {str(one) for folder in (home / "sandboxes", state) if folder.exists() for one in folder.rglob("*")}
    return {f"machine {id}" for id in runs.processes()} | files - {str(state / "created")}


class TestMicrosandbox(BackendConformance):
    known_gaps = {}  # noqa: RUF012 - a constant of the class

    @pytest.fixture
    def another(self, microsandbox_home, tmp_path):
        async def open_one():
            [backend] = MicrosandboxProvider.backends(BackendSettings(tmp_path / "microsandbox"))
            await backend.open()
            return backend

        return open_one

    @pytest.fixture
    async def backend(self, another):
        backend = await another()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self, another, microsandbox_home, tmp_path):
        state = tmp_path / "microsandbox"
        return Profile(
            "microsandbox",
            lambda name: SandboxSpec(name, **spec_fields()),
            another=another,
            disk=(microsandbox_home / "db", microsandbox_home / "sandboxes", state),
            leftovers=lambda: leftovers(microsandbox_home, state),
            own_kernel=True,
            least_cpus=1,
        )
