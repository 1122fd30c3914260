"""An engine on another host, reached over ssh: a real sshd and dockerd on a machine of namespaces behind a veth pair."""

from __future__ import annotations

import getpass
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.egress import image
from tests.support.engine_machine import MachineEngine, machine
from tests.support.permits import MakePermit
from tests.support.require import requires
from tests.support.sshd import Sshd, running

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker import DockerProvider
from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import Fact, SandboxRef
from sandbox_console.model.spec import SandboxSpec

pytestmark = [requires("docker"), requires("sshd")]
HERE, THERE = "10.254.97.1", "10.254.97.2"
FAR = "the engine is on another"


@pytest.fixture(scope="module")
def engine() -> Iterator[MachineEngine]:
    with machine() as made:
        made.docker("import", "-c", 'CMD ["/bin/sh"]', "-", image.NAME, stdin=image.tree())
        name = f"sc{os.getpid()}"
        for words in (
            ("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(made.pid)),
            ("addr", "add", f"{HERE}/30", "dev", name),
            ("link", "set", name, "up"),
        ):
            subprocess.run(["ip", *words], check=True)
        made.docker("network", "create", "outside")
        made.run("busybox", "ip", "addr", "add", f"{THERE}/30", "dev", "eth0")
        made.run("busybox", "ip", "link", "set", "eth0", "up")
        yield made


@pytest.fixture
def sshd(engine: MachineEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    enter = ("nsenter", "-t", str(engine.pid), "-n")
    with (
        tempfile.TemporaryDirectory(prefix="sc-") as runtime,
        running(tmp_path, address=THERE, enter=enter) as server,
    ):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        server.trusted()
        yield server


async def opened(url: str, state: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DOCKER_HOST", url)
    [made] = DockerProvider.backends(BackendSettings(state, {"egress_image": image.NAME, "egress_network": "outside"}))
    await made.open()
    return made


@pytest.fixture
async def far(engine, sshd, tmp_path, monkeypatch) -> AsyncIterator[Any]:
    """The engine as another host's console has it."""
    url = f"ssh://{getpass.getuser()}@{THERE}:{sshd.port}{engine.socket}"
    made = await opened(url, tmp_path / "far", monkeypatch)
    assert (await made.health()).ok
    yield made
    await made.close()


@pytest.mark.parametrize("fields", [{"egress": ("good.example.com",)}, {"egress": ("0.0.0.0/0",)}, {"ports": ("80",)}])
async def test_nothing_is_made_that_would_need_a_gateway_and_it_says_why(far, engine, permit: MakePermit, fields):
    assert FAR in far.capabilities().reason(Capability.EGRESS_ALLOWLIST)
    [told] = [one for one in await far.diagnose() if one.what == "egress"]
    assert (told.state, FAR in told.text) == ("warning", True)
    assert not [one for one in await far.diagnose() if one.what == "egress.host"]
    spec = SandboxSpec("far", command=("sleep", "1"), image=image.NAME, **fields)
    with pytest.raises(Unsupported, match=FAR):
        await far.create(await permit("create"), spec, [], lambda _: None)
    assert engine.docker("ps", "-aq") == ""


@pytest.fixture
async def neighbours(engine, far, tmp_path, monkeypatch, permit: MakePermit) -> AsyncIterator[tuple[Any, SandboxRef]]:
    """A sandbox with a gateway that a console on the engine's own machine made."""
    near = await opened(engine.url, tmp_path / "near", monkeypatch)
    spec = SandboxSpec("near", egress=("good.example.com",), command=("sleep", "1000"), image=image.NAME)
    ref = await near.create(await permit("create"), spec, [], lambda _: None)
    await near.start(await permit("start"), ref, [])
    yield near, ref
    await near.remove(await permit("remove"), ref, force=True)
    await near.close()


def host_fact(effective: Any) -> Fact:
    [found] = [one for one in effective if one.field == "egress.host"]
    return found


async def test_a_gateway_of_the_machines_own_console_is_not_said_to_be_known(far, neighbours, permit: MakePermit):
    """Its records, which say whether it knows the engine's network, are files of the other machine."""
    near, ref = neighbours
    assert host_fact((await near.inspect(ref)).effective).enforced
    [seen] = await far.list()
    fact = host_fact((await far.inspect(seen.ref)).effective)
    assert not fact.enforced
    assert "another" in fact.note, fact
    await far.kill(await permit("kill"), seen.ref, "KILL")
    with pytest.raises(ConsoleError, match="another"):
        await far.start(await permit("start"), seen.ref, [])
