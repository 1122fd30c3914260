"""Egress from inside real containers of a private engine, whose world is a bridge in its own network namespace."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.egress import attempts, image, world
from tests.egress.screens import allow_from_a_denial
from tests.egress.test_bubblewrap import NODE, Box, shared_folder, soon
from tests.egress.test_recreated import SPEC, decided_and_recreated
from tests.support.engine import DockerEngine
from tests.support.permits import MakePermit
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker import DockerProvider
from sandbox_console.errors import BackendError, NotFound, Unsupported
from sandbox_console.model.action import Update
from sandbox_console.model.capability import Capability
from sandbox_console.model.drift import drifted
from sandbox_console.model.egress import Effect, EgressRule
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console

pytestmark = requires("docker")
BRIDGE = "93.184.216.1"  # the private engine's own
OUTSIDE = "93.184.216.50"  # a public address, which here is a container's on that bridge
NAMES = ("good.example.com", "other.example.com", "a.wild.example.org", "evil.example.net", "wild.example.org")
NODE_FILES = image.with_libraries("/usr/bin/node")
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Sockets that are made inside are of another process's network, and stay so."""
    here, there = (os.open(f"/proc/{one}/ns/net", os.O_RDONLY) for one in ("self", pid))
    try:
        assert _libc.setns(there, 0) == 0
        yield
    finally:
        assert _libc.setns(here, 0) == 0
        os.close(here)
        os.close(there)


@pytest.fixture(scope="module")
def engine(docker_engine: DockerEngine) -> Iterator[DockerEngine]:
    docker_engine.docker("import", "-c", 'CMD ["/bin/sh"]', "-", image.NAME, stdin=image.tree())
    docker_engine.docker("network", "create", "--subnet", "93.184.216.0/24", "--gateway", BRIDGE, "outside")
    docker_engine.docker("run", "-d", "--name", "outside", "--network", "outside", "--ip", OUTSIDE, image.NAME, "sleep", "10000")  # fmt: skip
    yield docker_engine
    docker_engine.docker("rm", "-f", "outside")
    left = docker_engine.docker("ps", "-aq", "--filter", "label=sandbox-console.gateway")
    networks = docker_engine.docker("network", "ls", "-q", "--filter", "label=sandbox-console.egress")
    docker_engine.docker("network", "rm", "outside")
    assert (left, networks) == ("", ""), "every gateway and network went with its sandbox"


@pytest.fixture
def servers(engine: DockerEngine, ca: Path) -> Iterator[tuple[world.Server, world.Server]]:
    with network_of(engine.inspect("outside")["State"]["Pid"]):
        secure, plain = world.Server((OUTSIDE, 0), ca), world.Server((OUTSIDE, 0))
    yield secure, plain
    secure.close()
    plain.close()


@pytest.fixture
def allowed(servers: tuple[world.Server, world.Server]) -> tuple[str, ...]:
    return tuple(f"{name}:{server.port}" for name in ("good.example.com", "*.wild.example.org") for server in servers)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    hosts = tmp_path / "hosts"
    lines = [f"{OUTSIDE} {name}" for name in NAMES]
    lines += [f"{address} {name}" for name, [address] in attempts.REBINDING.items()]
    hosts.write_text("\n".join(lines))
    return {"egress_image": image.NAME, "egress_network": "outside", "egress_hosts": str(hosts)}


@pytest.fixture
async def backend(engine: DockerEngine, options: dict[str, Any], tmp_path: Path, monkeypatch) -> AsyncIterator[Any]:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    [made] = DockerProvider.backends(BackendSettings(tmp_path / "state", options))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def make(backend: Any, permit: MakePermit) -> AsyncIterator[Callable[..., Awaitable[Box]]]:
    made: list[SandboxRef] = []

    async def one(*egress: str, start: bool = True, **fields: Any) -> Box:
        fields = {"command": ("sleep", "1000"), "image": image.NAME, **fields}
        spec = SandboxSpec(f"egress-{os.getpid()}-{len(made)}", egress=egress, **fields)
        ref = await backend.create(await permit("create"), spec, [], lambda _: None)
        made.append(ref)
        if start:
            await backend.start(await permit("start"), ref, [])
        return Box(backend, permit, ref)

    yield one
    for ref in made:
        with contextlib.suppress(NotFound):
            await backend.remove(await permit("remove"), ref, force=True)


def gateway_of(engine: DockerEngine, box: Box) -> tuple[str, dict[str, Any]]:
    """The gateway's container: its name and what the engine tells of it."""
    token = engine.inspect(box.ref.id)["Config"]["Labels"]["sandbox-console.egress"]
    name = f"sandbox-console-gateway-{token}"
    return name, engine.inspect(name)


def in_engine(engine: DockerEngine, script: str) -> str:
    """A shell's words in the network that the engine is in."""
    words = ["nsenter", "-t", str(engine.pid), "-n", "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


async def evidence(engine: DockerEngine, box: Box, *servers: world.Server) -> str:
    """What tells how a sandbox came out: the networks of the engine and of the sandbox, and who was reached."""
    look = "cd /proc/net; head -50 route arp dev /proc/sys/net/ipv4/ip_forward"
    addresses = "busybox ip addr; busybox ip route; busybox ip neigh; head /proc/sys/net/ipv4/conf/*/proxy_arp"
    own = engine.inspect(box.ref.id)
    words = [
        f"accepted: {[one.connections for one in servers]}, pids {[own['State']['Pid'], engine.pid]}",
        f"its networks: {json.dumps(own['NetworkSettings']['Networks'])}",
        f"of the engine: {in_engine(engine, f'{look}; {addresses}')}",
        f"of the sandbox: {(await box.run('sh', '-c', look))[1]}",
        f"who is outside: {engine.docker('network', 'inspect', 'outside')}",
        f"the engine said: {engine.said()[-3000:]}",
    ]
    return "\n".join(words)


async def test_every_attempt_of_a_hostile_container_fails_and_is_on_record(make, servers, allowed, engine):
    secure, plain = servers
    neighbour = await make(*allowed)
    box = await make(*allowed, *attempts.REBINDING, *(f"{name}:{plain.port}" for name in attempts.REBINDING), user="0")
    _, mine = gateway_of(engine, box)
    _, other = gateway_of(engine, neighbour)
    [network] = [one for name, one in mine["NetworkSettings"]["Networks"].items() if name != "outside"]
    [far] = [one for name, one in other["NetworkSettings"]["Networks"].items() if name != "outside"]
    with network_of(engine.inspect("outside")["State"]["Pid"]):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind((OUTSIDE, 0))
    with udp:
        asked = {
            "proxy": network["IPAddress"], "secure": secure.port, "plain": plain.port, "hostip": OUTSIDE,
            "unnamed": OUTSIDE, "gateway": network["IPAddress"].rsplit(".", 1)[0] + ".1",
            "neighbour": far["IPAddress"], "udp": udp.getsockname()[1],
        }  # fmt: skip
        code, said = await box.run("python3", "-", json.dumps(asked), stdin=attempts.PROGRAM.encode())
    assert code == 0, said
    found = json.loads(said)
    assert found.pop("control").startswith("PASSED")
    passed = {name: told for name, told in found.items() if told.startswith("PASSED")}
    assert passed == {}, await evidence(engine, box, secure, plain)
    seen = {(one.host, one.reason) for one in await box.records() if not one.allowed}
    assert {name: pair for name, pair in attempts.RECORDED.items() if pair not in seen} == {}
    assert len(secure.seen) == 1, "only the control"
    assert plain.seen == []
    assert await neighbour.records() == []


async def test_an_engine_that_gives_its_bridge_an_address_and_forwards_opens_no_way_and_is_told_of(
    make, servers, allowed, engine, backend, permit
):
    """Both are what the console's network asks the engine not to do."""
    secure, plain = servers
    box = await make(*allowed, user="0")
    _, mine = gateway_of(engine, box)
    [network] = [one for name, one in mine["NetworkSettings"]["Networks"].items() if name != "outside"]
    own = ipaddress.ip_interface(f"{network['IPAddress']}/29").network
    bridge = f"br-{network['NetworkID'][:12]}"
    in_engine(engine, f"busybox ip addr add {own[1]}/29 dev {bridge}; echo 1 >/proc/sys/net/ipv4/ip_forward")
    try:
        assert str(own[1]) in in_engine(engine, f"busybox ip addr show {bridge}")
        asked = {
            "proxy": network["IPAddress"], "secure": secure.port, "plain": plain.port, "hostip": OUTSIDE,
            "unnamed": OUTSIDE, "gateway": str(own[6]), "neighbour": BRIDGE, "udp": 9,
        }  # fmt: skip
        code, said = await box.run("python3", "-", json.dumps(asked), stdin=attempts.PROGRAM.encode())
        assert code == 0, said
        found = json.loads(said)
        assert found.pop("control").startswith("PASSED")
        passed = {name: told for name, told in found.items() if told.startswith("PASSED")}
        assert passed == {}, await evidence(engine, box, secure, plain)

        async def told() -> bool:
            return any(one.field == "egress.bridge" for one in (await backend.inspect(box.ref)).effective)

        assert not await told(), "its gateway looked before"
        await backend.stop(await permit("stop"), box.ref, 0)
        await backend.start(await permit("start"), box.ref, [])
        await soon(told, "nobody tells that the bridge has an address")
    finally:
        in_engine(engine, "echo 0 >/proc/sys/net/ipv4/ip_forward")


PYTHON = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="/workspace/ca.pem")
print(urllib.request.urlopen(sys.argv[1], context=context, timeout=30).read().decode())
"""


async def test_what_is_allowed_works_with_curl_and_python(make, servers, allowed, ca):
    secure, plain = servers
    work = shared_folder(ca)
    try:
        box = await make(*allowed, workspace=str(work))
        at = f"good.example.com:{secure.port}"
        hello = "hello from good.example.com"
        curl = "curl -sS -m 30 --cacert /workspace/ca.pem"
        assert await box.run("sh", "-c", f"{curl} https://{at}/") == (0, f"{hello}:{secure.port}")
        url = f"http://good.example.com:{plain.port}/"
        assert await box.run("sh", "-c", f"{curl} {url}") == (0, f"{hello}:{plain.port}")
        code, said = await box.run("python3", "-c", PYTHON, f"https://{at}/")
        assert (code, hello in said) == (0, True), said
        _, said = await box.run("sh", "-c", f"{curl} http://evil.example.net/")
        assert json.loads(said)["reason"] == "not_allowed"
    finally:
        shutil.rmtree(work)
    ends = await soon(lambda: ended(box, 3), "the ends are on record")
    assert {(one.host, one.address) for one in ends} == {("good.example.com", OUTSIDE)}


async def ended(box: Box, count: int) -> Any:
    found = [one for one in await box.records() if one.ended]
    return found if len(found) >= count else None


@pytest.mark.skipif(not NODE_FILES, reason="no Node here")
async def test_what_is_allowed_works_with_node(make, servers, allowed, ca):
    """This machine's Node, from the workspace: the image has none."""
    secure, _ = servers
    work = shared_folder(ca)
    try:
        for path in NODE_FILES:
            shutil.copy(path, work)
        box = await make(*allowed, workspace=str(work), env={"LD_LIBRARY_PATH": "/workspace"})
        code, said = await box.run("/workspace/node", "-e", NODE, f"good.example.com:{secure.port}")
        assert (code, "hello from good.example.com" in said) == (0, True), said
    finally:
        shutil.rmtree(work)
    assert [one.host for one in await soon(lambda: ended(box, 1), "its end is on record")] == ["good.example.com"]


@pytest.mark.parametrize("how", ["revoked", "denied", "expired"])
async def test_a_download_is_cut_when_its_rule_goes(make, servers, allowed, how):
    _, plain = servers
    box = await make(*allowed)
    good = f"good.example.com:{plain.port}"
    if how == "expired":  # by the gateway itself: no console of the sandbox's is asked again
        await box.put(EgressRule(good, until=time.time() + 5, source="live"), "other.example.com")
    process = await box.process("curl", "-sS", "-m", "60", f"http://good.example.com:{plain.port}/slow")
    output = process.output()
    assert (await anext(output))[0] is Stream.STDOUT
    if how == "revoked":
        await box.put(EgressRule("other.example.com", until=time.time() + 100))
    elif how == "denied":
        await box.put("other.example.com", good, EgressRule("*.example.com", Effect.DENY))
    async with asyncio.timeout(60):
        rest = [data async for stream, data in output if stream is Stream.STDERR]
    assert (await process.wait()).code in (18, 56), rest
    assert [one.reason for one in await ended(box, 1)] == ["revoked"]
    left = [rule.pattern for rule in (await box.backend.egress(box.ref)).rules]
    assert left == ["other.example.com", *((good, "*.example.com") if how == "denied" else ())]


async def test_a_killed_gateway_lets_nothing_pass_and_returns(make, servers, allowed, engine):
    _, plain = servers
    box = await make(*allowed)
    name, before = gateway_of(engine, box)
    os.kill(before["State"]["Pid"], 9)
    url = f"http://good.example.com:{plain.port}/"
    await soon(lambda: gateway_of(engine, box)[1]["State"]["Pid"] not in (0, before["State"]["Pid"]), "it is back")
    await soon(lambda: passes(box, url), "it answers again")
    engine.docker("stop", "-t", "1", name)
    before = plain.connections
    code, said = await box.run("curl", "-sS", "-m", "5", url)
    assert code != 0, said
    assert plain.connections == before
    assert "is not running" in (await box.backend.egress(box.ref)).gateway
    with pytest.raises(BackendError, match="is not running"):
        await box.ask("good.example.com", plain.port)


async def passes(box: Box, url: str) -> bool:
    return (await box.run("curl", "-sS", "-m", "5", url))[0] == 0


async def test_the_rules_in_force_and_what_they_decide(make, servers, allowed):
    secure, _ = servers
    box = await make(*allowed)
    state = await box.backend.egress(box.ref)
    assert ([rule.pattern for rule in state.rules], state.gateway) == (list(allowed), "")
    assert (await box.ask("good.example.com", secure.port)).rule == f"good.example.com:{secure.port}"
    assert (await box.ask("-x.example.com", 443)).reason in ("bad_host", "not_allowed")
    await box.put(*allowed, EgressRule("evil.example.net", source="live"))
    assert (await box.ask("evil.example.net", 443)).allowed
    assert secure.connections == 0


async def test_a_denial_is_allowed_from_the_screen(make, servers, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    _, plain = servers
    box = await make("seed.example.com")
    await allow_from_a_denial(box, "good.example.com", plain.port)
    assert [request[0] for request in plain.seen] == [f"good.example.com:{plain.port}"]


async def test_rules_stay_over_a_restart_and_all_goes_with_the_sandbox(
    make, allowed, permit, backend, engine, tmp_path
):
    box = await make(*allowed)
    await box.put("kept.example.com")
    await backend.rename(await permit("rename"), box.ref, f"renamed-{os.getpid()}")
    await backend.stop(await permit("stop"), box.ref, 0)
    name, data = gateway_of(engine, box)
    assert not data["State"]["Running"]
    await backend.start(await permit("start"), box.ref, [])
    assert (await box.ask("kept.example.com", 443)).allowed
    await box.run("curl", "-s", "http://evil.example.net/")
    assert [one.sandbox for one in await box.records()] == [f"renamed-{os.getpid()}"]
    assert [row.name for row in await backend.list() if "gateway" in row.name] == []
    await backend.remove(await permit("remove"), box.ref, force=True)
    for words in (("ps", "-a"), ("network", "ls")):
        assert name.rpartition("-")[2] not in engine.docker(*words)
    assert [path.suffix for path in (tmp_path / "state/egress").iterdir()] == [".pyz"]


async def test_what_holds_for_the_gateway_and_the_sandbox(make, allowed, engine, backend):
    box = await make(*allowed)
    _, data = gateway_of(engine, box)
    host = data["HostConfig"]
    assert data["Config"]["User"] == "65532:65532"
    assert (host["CapDrop"], host["ReadonlyRootfs"], host["RestartPolicy"]["Name"]) == (["ALL"], True, "unless-stopped")
    assert host["Sysctls"]["net.ipv4.ip_forward"] == "0"
    writable = [mount["Destination"] for mount in data["Mounts"] if mount["RW"]]
    assert writable == ["/gateway/records"]
    own = engine.inspect(box.ref.id)
    [name] = own["NetworkSettings"]["Networks"]
    network = json.loads(engine.docker("network", "inspect", name))[0]
    assert network["Internal"]
    assert network["IPAM"]["Config"][0]["Subnet"].endswith("/29")
    facts = {fact.field: fact for fact in (await backend.inspect(box.ref)).effective}
    assert facts["egress"].value == "its gateway"
    assert facts["egress"].enforced


async def test_events_do_not_tell_of_gateways(make, allowed, backend, permit, engine):
    seen: set[str] = set()

    async def watch() -> None:
        async for event in backend.watch():
            for row in [*getattr(event, "sandboxes", ()), *filter(None, [getattr(event, "sandbox", None)])]:
                seen.add(row.name)

    watching = asyncio.create_task(watch())
    box = await make(*allowed)
    name = (await backend.inspect(box.ref)).name
    await soon(lambda: name in seen, "the sandbox is seen")
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert not [one for one in seen if "gateway" in one]


async def test_a_failed_create_leaves_nothing(make, allowed, engine):
    box = await make(*allowed)
    name = engine.inspect(box.ref.id)["Name"].lstrip("/")
    before = (engine.docker("network", "ls", "-q"), engine.docker("ps", "-aq"))
    spec = SandboxSpec(name, image=image.NAME, egress=allowed, command=("sleep", "1"))
    with pytest.raises(Exception, match="taken"):
        await box.backend.create(await box.permit("create"), spec, [], lambda _: None)
    assert (engine.docker("network", "ls", "-q"), engine.docker("ps", "-aq")) == before


async def test_without_an_image_with_python_it_is_unsupported_and_says_so(engine, tmp_path, permit, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    [backend] = DockerProvider.backends(BackendSettings(tmp_path / "state", {"egress_image": "no-such:image"}))
    await backend.open()
    try:
        able = backend.capabilities()
        assert not able.has(Capability.EGRESS_ALLOWLIST)
        assert "no-such:image is not on this engine" in able.reason(Capability.EGRESS_ALLOWLIST)
        spec = SandboxSpec("refused", image=image.NAME, egress=("good.example.com",), command=("sleep", "1"))
        with pytest.raises(Unsupported, match="egress gateway"):
            await backend.create(await permit("create"), spec, [], lambda _: None)
    finally:
        await backend.close()


async def test_an_image_without_python_fails_the_start_with_the_reason(make, options, allowed, engine):
    from tests.support.engine import IMAGE

    options["egress_image"] = IMAGE  # the backend has read them; its own copy is what counts
    box = await make(start=False)
    box.backend._gateways._options = type(box.backend._gateways._options)(**options)
    broken = await make(*allowed, start=False)
    with pytest.raises(BackendError, match=r"egress gateway of .* (cannot start|does not start)"):
        await box.backend.start(await box.permit("start"), broken.ref, [])
    assert (await box.backend.inspect(broken.ref)).status is Status.CREATED


async def test_one_without_egress_has_no_gateway_and_says_so(make):
    box = await make()
    assert (await box.backend.egress(box.ref)).rules == ()
    assert await box.records() == []
    with pytest.raises(Unsupported, match="without egress"):
        await box.put("good.example.com")


async def test_what_another_tool_removed_is_swept_away(make, allowed, engine, monkeypatch):
    box = await make(*allowed)
    name, _ = gateway_of(engine, box)
    engine.docker("rm", "-f", box.ref.id)
    monkeypatch.setattr("sandbox_console.backends.docker.gateways._ORPHAN_S", -1.0)
    await make(*allowed)
    done = subprocess.run(["docker", "-H", engine.url, "inspect", name], capture_output=True, check=False)
    assert done.returncode != 0


async def test_a_name_at_an_address_of_the_engines_machine_is_refused_as_soon_as_it_has_it(make, backend, options):
    """Added while the gateway runs: it reads the machine's addresses live."""
    ours, words = "93.184.220.7", ["busybox", "ip", "addr"]
    Path(options["egress_hosts"]).write_text(f"{ours} good.example.com\n")
    box = await make("good.example.com")
    subprocess.run([*words, "add", f"{ours}/32", "dev", "lo"], capture_output=True, check=True)
    try:

        async def refused() -> Any:
            await box.run("curl", "-s", "-m", "5", "http://good.example.com/")
            return [one for one in await box.records() if (one.address, one.reason) == (ours, "not_global")]

        assert await soon(refused, "it is refused")
    finally:
        subprocess.run([*words, "del", f"{ours}/32", "dev", "lo"], capture_output=True, check=True)


async def test_no_network_in_a_rule_leads_to_loopback_link_metadata_or_what_a_route_makes_local(make, options):
    """The IPv6 network has no interface of the engine's machine: a route alone makes it local."""
    routed, words = "2001:470:7::/64", ["busybox", "ip", "-6", "route"]
    places = (
        "127.0.0.2",
        "0.0.0.0",
        "::",
        "::ffff:7f00:1",
        "169.254.42.42",
        "fe80::1",
        "fd00:42::42",
        "2001:470:7::9",
    )
    names = [f"n{at}.example.com" for at in range(len(places))]
    Path(options["egress_hosts"]).write_text(
        "".join(f"{place} {name}\n" for place, name in zip(places, names, strict=True))
    )
    subprocess.run([*words, "add", "local", routed, "dev", "lo"], capture_output=True, check=True)
    try:
        box = await make(*names, "0.0.0.0/0", "[::/0]:80")
        await box.run("sh", "-c", "".join(f"curl -s -m 20 http://{name}/;" for name in names))
        assert [(one.address, one.reason) for one in await box.records()] == [(one, "own_host") for one in places]
    finally:
        subprocess.run([*words, "del", "local", routed, "dev", "lo"], capture_output=True, check=True)


async def test_the_engines_end_of_the_bridge_is_refused_whatever_network_a_rule_names(make, engine, options):
    """The engine of these tests has a network of its own, as in a container: its bridge is no address of process 1's."""
    Path(options["egress_hosts"]).write_text(f"{BRIDGE} good.example.com\n")
    with network_of(int((engine.folder / "docker.pid").read_text())):
        server = world.Server((BRIDGE, 0))
    try:
        box = await make(f"good.example.com:{server.port}", f"93.184.0.0/16:{server.port}")
        for host in ("good.example.com", BRIDGE, f"[::ffff:{BRIDGE}]"):
            await box.run("curl", "-s", "-m", "5", f"http://{host}:{server.port}/")
        assert server.connections == 0
        reasons = [one.reason for one in await box.records()]
        assert "own_host" in reasons
        assert len(reasons) == 3
    finally:
        server.close()


async def test_where_the_engine_has_a_network_of_its_own_it_is_told_as_not_enforced(make, backend):
    """It is not process 1's, whose addresses the gateway reads."""
    box = await make("good.example.com")
    facts = {fact.field: fact for fact in (await backend.inspect(box.ref)).effective}
    assert (facts["egress.host"].value, facts["egress.host"].enforced) == ("not enforced", False)
    assert "network of its own" in facts["egress.host"].note
    [told] = [one for one in await backend.diagnose() if one.what == "egress.host"]
    assert (told.state, told.text[:12]) == ("warning", "not enforced")


async def test_a_sandbox_cut_off_from_its_gateway_is_drift_and_joins_it_again(make, allowed, engine, permit):
    box = await make(*allowed)
    own = engine.inspect(box.ref.id)["HostConfig"]["NetworkMode"]
    assert drifted(await box.backend.inspect(box.ref)) == ()
    engine.docker("network", "disconnect", own, box.ref.id)
    engine.docker("network", "connect", "outside", box.ref.id)
    found = await box.backend.inspect(box.ref)
    assert found.found["network"] == "cut off from its gateway, also on network outside"
    await box.backend.rejoin(await permit("update"), box.ref)
    assert drifted(await box.backend.inspect(box.ref)) == ()
    networks = engine.inspect(box.ref.id)["NetworkSettings"]["Networks"]
    assert set(networks) == {own}
    code, _ = await box.run("sh", "-c", "ls /sys/class/net | grep -c eth")
    assert code == 0


async def test_an_edited_list_is_applied_to_the_running_gateway(make, backend, servers, allowed, tmp_path, monkeypatch):
    """A denial that was made live stays, a download from a host that left the list is cut, and nothing restarts."""
    _, plain = servers
    box = await make(*allowed)
    started = (await backend.inspect(box.ref)).started_at
    await box.put(*allowed, EgressRule("other.example.com", Effect.DENY, source="live"))
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    download = asyncio.create_task(box.run("curl", "-sS", f"http://good.example.com:{plain.port}/slow"))
    await soon(lambda: plain.seen, "the download has begun")
    async with open_console(Config(backend="docker"), backends=[backend]) as console:
        old = await console.inspect(box.ref)
        new = structs.replace(old.spec, egress=(f"other.example.com:{plain.port}", f"*.wild.example.org:{plain.port}"))
        plan = await console.plan(old, new)
        assert [(change.field, str(change.how)) for change in plan.changes] == [("egress", "live")]
        done = await console.perform(Update(box.ref, new)).result()
        after = await console.inspect(box.ref)
    assert (await download)[0] != 0
    assert (done.ref, after.started_at, after.spec) == (box.ref, started, new)
    assert {(rule.pattern, str(rule.effect)) for rule in (await backend.egress(box.ref)).rules} == {
        (new.egress[0], "allow"), (new.egress[1], "allow"), ("other.example.com", "deny"),
    }  # fmt: skip
    asked = [
        await box.ask(host, plain.port) for host in ("good.example.com", "a.wild.example.org", "other.example.com")
    ]
    assert [one.allowed for one in asked] == [False, True, False]


async def test_denied_not_resolved_and_failed_are_three_outcomes(make, servers):
    box = await make("nowhere.invalid:80", "good.example.com:1")
    names = ("evil.example.net", "nowhere.invalid", "good.example.com:1")
    for name in names:
        await box.run("sh", "-c", f"curl -sS -m 30 http://{name}/")
    assert [(one.host, str(one.outcome)) for one in await box.records()] == [
        ("evil.example.net", "denied"),
        ("nowhere.invalid", "unresolved"),
        ("good.example.com", "failed"),
    ]


async def test_a_recreated_sandbox_keeps_what_was_decided_live(engine, backend, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    async with open_console(Config(backend="docker"), backends=[backend]) as console:
        spec = structs.replace(SPEC, name="recreated", image=image.NAME)
        await decided_and_recreated(console, backend, spec, ("docker", "default"))
