"""What the backend did, as another client of the engine sees it: the docker package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from docker.errors import NotFound
from tests.docker.conftest import Make
from tests.support.engine import DockerEngine
from tests.support.permits import MakePermit
from tests.support.require import requires

import docker
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.seccomp import docker_profile

pytestmark = [requires("docker"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def witness(engine: DockerEngine) -> Iterator[docker.DockerClient]:
    with contextlib.closing(docker.DockerClient(base_url=engine.url)) as client:
        yield client


async def test_a_container_is_hardened(make: Make, witness: docker.DockerClient) -> None:
    ref = await make(memory_mib=64, cpus=0.5, pids=33, labels={"team": "search"}, read_only_root=True)
    seen = witness.containers.get(ref.id)
    host = seen.attrs["HostConfig"]
    assert seen.labels["team"] == "search"
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert host["SecurityOpt"] == ["no-new-privileges:true", f"seccomp={docker_profile()}"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (
        1 << 26,
        1 << 26,
        5 * 10**8,
        33,
    )
    assert (host["NetworkMode"], host["Privileged"], host["ReadonlyRootfs"]) == ("none", False, True)
    assert (host["Binds"], host["IpcMode"]) == (None, "private")


async def test_its_life_is_seen(
    make: Make, backend: DockerBackend, permit: MakePermit, witness: docker.DockerClient
) -> None:
    ref = await make()
    seen = witness.containers.get(ref.id)
    await backend.pause(await permit("pause"), ref)
    seen.reload()
    assert seen.status == "paused"
    await backend.resume(await permit("resume"), ref)
    await backend.rename(await permit("rename"), ref, f"{seen.name}-renamed")
    await backend.stop(await permit("stop"), ref, 5)
    seen.reload()
    assert (seen.status, seen.name.endswith("-renamed")) == ("exited", True)
    await backend.remove(await permit("remove"), ref, force=False)
    with pytest.raises(NotFound):
        witness.containers.get(ref.id)


async def test_what_it_made_the_backend_lists_as_anothers(backend: DockerBackend, witness: docker.DockerClient) -> None:
    made = witness.containers.create("sandbox-console-test:busybox", ["sleep", "1"], labels={"a": "b"})
    try:
        found = next(one for one in await backend.list() if one.ref.id == made.id)
        assert (found.managed, found.spec, dict(found.labels)["a"]) == (False, None, "b")
    finally:
        made.remove(force=True)
