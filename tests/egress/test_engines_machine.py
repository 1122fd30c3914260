"""The engine's own machine, attacked through allowed names: a whole machine of namespaces whose addresses come and go."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docker.test_remote import relay
from tests.egress import image
from tests.egress.test_bubblewrap import Box
from tests.egress.test_docker import network_of
from tests.support.engine_machine import MachineEngine, machine
from tests.support.permits import MakePermit
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker import DockerProvider
from sandbox_console.errors import BackendError, NotFound, Unsupported
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec

pytestmark = requires("docker")
BRIDGE, BRIDGE_6 = "93.184.216.1", "2606:2800:21f:cb07::1"
PUBLIC, PUBLIC_6, LATER, LATER_6 = "93.184.220.7", "2606:2800:220::7", "93.184.220.8", "2606:2800:220::8"
ANYIP, ANYIP_6 = "93.184.221.0/24", "2606:2800:221::/64"  # local by a route alone, of no interface

REACH = """
import socket, sys, time
for place in sys.argv[2:]:
    until = time.monotonic() + 20  # an IPv6 address is tentative at first
    while True:
        try:
            socket.create_connection((place, int(sys.argv[1])), 5).close()
            break
        except OSError:
            if time.monotonic() > until:
                raise SystemExit(place)
            time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[MachineEngine]:
    with machine() as made:
        made.docker("import", "-c", 'CMD ["/bin/sh"]', "-", image.NAME, stdin=image.tree())
        six = ("--ipv6", "--subnet", f"{BRIDGE_6}/64", "--gateway", BRIDGE_6)
        made.docker("network", "create", "--subnet", "93.184.216.0/24", "--gateway", BRIDGE, *six, "outside")
        for address in (f"{PUBLIC}/32", f"{PUBLIC_6}/128"):
            made.run("busybox", "ip", "addr", "add", address, "dev", "lo")
        for words in (("-4", ANYIP), ("-6", ANYIP_6)):
            made.run("busybox", "ip", words[0], "route", "add", "local", words[1], "dev", "lo")
        yield made


@pytest.fixture
def server(engine: MachineEngine) -> Iterator[socket.socket]:
    """A server that hears every address of the machine."""
    with network_of(engine.pid):
        hears = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with hears:
        hears.setblocking(False)
        yield hears


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    (tmp_path / "hosts").write_text("")
    return tmp_path / "hosts"


@pytest.fixture
async def backend(engine: MachineEngine, hosts: Path, tmp_path: Path, monkeypatch) -> AsyncIterator[Any]:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    options = {"egress_image": image.NAME, "egress_network": "outside", "egress_hosts": str(hosts)}
    [made] = DockerProvider.backends(BackendSettings(tmp_path / "state", options))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def make(backend: Any, permit: MakePermit) -> AsyncIterator[Callable[..., Awaitable[Box]]]:
    made: list[SandboxRef] = []

    async def one(*egress: str) -> Box:
        spec = SandboxSpec(f"m-{os.getpid()}-{len(made)}", egress=egress, command=("sleep", "1000"), image=image.NAME)
        ref = await backend.create(await permit("create"), spec, [], lambda _: None)
        made.append(ref)
        await backend.start(await permit("start"), ref, [])
        return Box(backend, permit, ref)

    yield one
    for ref in made:
        with contextlib.suppress(NotFound):
            await backend.remove(await permit("remove"), ref, force=True)


def url(host: str, server: socket.socket) -> str:
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{server.getsockname()[1]}/"


def heard(server: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        server.accept()[0].close()
        return True
    return False


async def test_no_name_and_no_form_of_an_address_reaches_the_engines_machine(make, engine, server, hosts):
    port = server.getsockname()[1]
    metadata = ("169.254.169.254", "168.63.129.16", "fd00:ec2::254")
    places = (
        PUBLIC, BRIDGE, PUBLIC_6, BRIDGE_6, f"::ffff:{PUBLIC}", f"64:ff9b::{PUBLIC}", "93.184.221.9", "2606:2800:221::9",
        "127.0.0.1", "::1", *metadata,
    )  # fmt: skip
    hosts.write_text("".join(f"{place} n{at}.example.com\n" for at, place in enumerate(places)))
    names = [f"n{at}.example.com" for at in range(len(places))]
    wide = ("0.0.0.0/0", "[::/0]", "93.0.0.0/8", "[2606:2800::/32]")
    box = await make(*(f"{one}:{port}" for one in (*names, *wide)))
    await control(engine, server, PUBLIC, PUBLIC_6, BRIDGE, BRIDGE_6, "93.184.221.9", "2606:2800:221::9")
    asked = [url(host, server) for host in (*names, *places)]
    await box.run("sh", "-c", "".join(f"curl -s -g -m 20 --noproxy '' '{one}';" for one in asked))
    assert not heard(server)
    told = [(one.host, one.reason) for one in await box.records() if not one.allowed]
    assert told == [(host, "own_host") for host in (*names, *map(str, map(ipaddress.ip_address, places)))]
    facts = {fact.field: fact for fact in (await box.backend.inspect(box.ref)).effective}
    assert (facts["egress.host"].value, facts["egress.host"].enforced) == ("refused", True)


async def control(engine: MachineEngine, server: socket.socket, *places: str) -> None:
    """Each is reached from a container that has no gateway."""
    words = ("run", "--rm", "--network", "outside", image.NAME, "python3", "-c", REACH)
    await asyncio.to_thread(engine.docker, *words, str(server.getsockname()[1]), *places)
    for _ in places:
        assert heard(server)


async def test_an_address_that_the_machine_gets_later_is_refused_at_once(make, engine, server, hosts):
    """A gateway that has looked a moment ago connects, looks again, and sends nothing."""
    port = server.getsockname()[1]
    hosts.write_text(f"{PUBLIC} seed.example.com\n{LATER} good.example.com\n{LATER_6} good.example.com\n")
    box = await make(f"seed.example.com:{port}", f"good.example.com:{port}")
    add = ";".join(f"busybox ip addr add {one} dev lo" for one in (f"{LATER}/32", f"{LATER_6}/128"))
    await box.run("curl", "-s", url("seed.example.com", server))
    engine.run("sh", "-c", add)
    try:
        for _ in range(5):
            await box.run("curl", "-s", "-m", "20", url("good.example.com", server))
        while (said := taken(server)) is not None:
            assert said == b""
        assert {one.reason for one in await box.records()} == {"not_global"}
    finally:
        engine.run("sh", "-c", add.replace(" add ", " del "))


def taken(server: socket.socket) -> bytes | None:
    """What the next client sent until it closed; None if there is no next client."""
    try:
        client, _ = server.accept()
    except BlockingIOError:
        return None
    with client:
        client.settimeout(10)
        return client.recv(100)


async def test_over_tcp_there_is_no_gateway_and_it_says_so(engine, tmp_path, monkeypatch, permit):
    async with relay(engine.socket) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        [far] = DockerProvider.backends(BackendSettings(tmp_path / "state", {"egress_image": image.NAME}))
        await far.open()
        try:
            assert "the engine is on another" in far.capabilities().reason(Capability.EGRESS_ALLOWLIST)
            assert [one.state for one in await far.diagnose() if one.what == "egress"] == ["warning"]
            spec = SandboxSpec("far", egress=("good.example.com",), command=("sleep", "1"), image=image.NAME)
            with pytest.raises(Unsupported, match="the engine is on another"):
                await far.create(await permit("create"), spec, [], lambda _: None)
        finally:
            await far.close()


async def test_an_engine_whose_machine_has_not_the_gateways_files_makes_none(make, engine, tmp_path):
    """A socket may be forwarded from anywhere: its engine then has other folders than this machine."""
    state = str(tmp_path / "state")
    Path(state).mkdir(exist_ok=True)
    engine.run_inside("busybox", "mount", "-t", "tmpfs", "none", state)
    try:
        with pytest.raises(BackendError, match=r"egress gateway of .* cannot be made"):
            await make("good.example.com")
        assert engine.docker("ps", "-aq") == ""
    finally:
        engine.run_inside("busybox", "umount", state)


async def test_an_engine_in_a_virtual_machine_is_told_as_not_enforced(make, backend, monkeypatch):
    """Its socket is here, as Docker Desktop's, and the machine around it has addresses that it does not know."""
    box = await make("good.example.com")
    monkeypatch.setattr("os.uname", lambda: os.uname_result(("Darwin", "mac", "23.6.0", "", "arm64")))
    facts = {fact.field: fact for fact in (await backend.inspect(box.ref)).effective}
    assert (facts["egress.host"].enforced, "virtual machine" in facts["egress.host"].note) == (False, True)
    [told] = [one for one in await backend.diagnose() if one.what == "egress.host"]
    assert (told.state, told.text[:12]) == ("warning", "not enforced")
