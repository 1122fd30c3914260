from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.microimage import microsandbox_home, spec_fields
from tests.support.require import requires

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.microsandbox import MicrosandboxProvider, boots
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile
from sandbox_console.testing.permits import permit_maker

__all__ = ["microsandbox_home"]

pytestmark = requires("microsandbox")

SLOW = "not asked in an emulated machine, where a microVM moves 0.5 MB/s"


def leftovers(home: Path, state: Path, lent: list[SandboxRef]) -> set[str]:
    """Machines that run, and what the home and the state have of sandboxes.

    The sandbox that is lent runs on meanwhile and makes files of its own, so what is below its folders does not count.
    """
    folders = set((home / "sandboxes").iterdir()) if (home / "sandboxes").exists() else set()
    files = {one for one in state.rglob("*") if not any(ref.id in str(one.parent) for ref in lent)}
    return {f"machine {one}" for one in boots.processes()} | set(map(str, folders | files)) - {str(state / "created")}


async def opened(state: Path) -> Backend:
    [backend] = MicrosandboxProvider.backends(BackendSettings(state))
    await backend.open()
    return backend


async def remove(lent: list[SandboxRef], state: Path) -> None:
    backend = await opened(state)
    async with permit_maker(state.parent) as permit:
        for ref in lent:
            await backend.remove(await permit("remove"), ref, True)
    await backend.close()


@pytest.fixture(scope="module")
def state(microsandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all checks: a sandbox is lent from one to the next, as a boot in an emulated machine takes seven seconds."""
    return tmp_path_factory.mktemp("conformance") / "microsandbox"


@pytest.fixture(scope="module")
def lent(state: Path) -> Iterator[list[SandboxRef]]:
    made: list[SandboxRef] = []
    yield made
    with ThreadPoolExecutor(1) as thread:  # where no loop is
        thread.submit(asyncio.run, remove(made, state)).result()


class TestMicrosandbox(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_no_network_but_the_loopback": "microsandbox 0.7.11 brings eth0 up with Network.none() too, and create has "
        "no disable_network: its other end refuses all instead",
        "test_a_long_line_is_whole": "microsandbox 0.7.11 keeps two files of 0.5 MB of a main process's output; what it "
        "dropped is told as a gap",
        "test_killed_by_a_signal_is_128_and_its_number": "microsandbox 0.7.11 tells -1 for any signal that the console "
        "has not sent itself; it is shown as 128",
        "test_a_fork_is_a_copy_with_a_name_of_its_own": "microsandbox 0.7.11 saves no memory while a main process runs "
        "('managed jobs are active'); without a command it forks",
    }

    @pytest.fixture
    def another(self, state):
        return lambda: opened(state)

    @pytest.fixture
    async def backend(self, another):
        backend = await another()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self, another, microsandbox_home, state, lent):
        return Profile(
            "microsandbox",
            lambda name: SandboxSpec(name, **spec_fields()),
            another=another,
            disk=(microsandbox_home / "db", microsandbox_home / "sandboxes", state),
            leftovers=lambda: leftovers(microsandbox_home, state, lent),
            own_kernel=True,
            least_cpus=1,
            longest_s=15.0,
            slow=SLOW if Path("/rw/msb").is_dir() else "",
            lent=lent,
        )
