from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

pytestmark = requires("bubblewrap")
OUTSIDE = ("good.example.com", "bad.example.com", "127.0.0.1")


def leftovers(state: Path) -> set[str]:
    """Sandboxes' folders, and cgroups by their names."""
    ids = {one.name for one in state.iterdir() if not one.name.startswith(".lock")} if state.exists() else set()
    groups = {str(one) for one in Path("/sys/fs/cgroup").rglob("sandbox-console-*") if one.name[16:] in ids}
    mounts = {line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(state) in line}
    return ids | groups | mounts


class TestBubblewrap(BackendConformance):
    @pytest.fixture
    def another(self, tmp_path):
        hosts = tmp_path / "hosts"
        hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in OUTSIDE[:2]))

        async def open_one():
            fast = {
                "log_rate_mib": 1024,
                "egress_hosts": str(hosts),
            }  # the suite writes at full speed, and looks for each line
            [backend] = BubblewrapProvider.backends(BackendSettings(tmp_path / "bubblewrap", fast))
            await backend.open()
            return backend

        return open_one

    @pytest.fixture
    async def backend(self, another):
        backend = await another()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self, another, tmp_path):
        return Profile(
            "bubblewrap",
            lambda name: SandboxSpec(name, image="host", command=("sleep", "1000")),
            another=another,
            disk=(tmp_path / "bubblewrap",),
            leftovers=lambda: leftovers(tmp_path / "bubblewrap"),
            outside=OUTSIDE,
        )
