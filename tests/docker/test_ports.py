"""Published ports on a private engine: this test is its host, in the engine's network namespace."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.egress import image
from tests.egress.test_bubblewrap import soon
from tests.egress.test_docker import network_of
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker import ports
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.gateways import Options
from sandbox_console.errors import BackendError, Conflict, Denied, Unsupported
from sandbox_console.model import action
from sandbox_console.model.ports import parse_all
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.service.gate.operation import ExecIO

pytestmark = requires("docker")
OUTSIDE = "ports-outside"
HOST = "172.29.7.1"  # the private engine's own address in that network
HERE = ("docker", "default")

# Says pong to what begins with ping; at the end of input the hash of all of it, and as many bytes back.
_SERVER = """
import hashlib, socket, threading
def serve(client):
    digest, size = hashlib.sha256(), 0
    while part := client.recv(65536):
        digest.update(part)
        size += len(part)
        if size == 5:
            client.sendall(b"pong")
    client.sendall(digest.hexdigest().encode() + b"x" * size)
    client.close()
server = socket.create_server(("", 7070), backlog=256)
while True:
    threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
"""
_ASK = """
import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).status)
    except OSError as error:
        print(error)
"""
# What a guest meets at the places of this host and of its gateway; without the proxy.
_TRY = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def meet(place):
    address, _, port = place.rpartition(":")
    try:
        sock = socket.create_connection((address, int(port)), 5)
        sock.sendall(b"ping\\n")
        return "met" if sock.recv(10) else "nobody"
    except OSError:
        return "nobody"
print(*ThreadPoolExecutor().map(meet, sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def world(docker_engine) -> Iterator[Any]:
    docker_engine.docker("import", "-c", 'CMD ["/bin/sh"]', "-c", "EXPOSE 7070", "-", image.NAME, stdin=image.tree())
    docker_engine.docker("network", "create", "--subnet", "172.29.7.0/24", "--gateway", HOST, OUTSIDE)
    yield docker_engine
    left = [docker_engine.docker(*words).split() for words in (("ps", "-aq"), ("network", "ls", "-qf", "type=custom"))]
    docker_engine.docker("network", "rm", OUTSIDE)
    assert (left[0], len(left[1])) == ([], 1), "nothing of a sandbox is left"


@pytest.fixture
async def backend(world, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", world.url)
    made = DockerBackend("default", tmp_path / "state", Options(egress_image=image.NAME, egress_network=OUTSIDE))
    yield made
    await made.close()


@pytest.fixture
async def console(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    async with open_console(Config(), backends=[backend]) as made:
        yield made


async def done(console, what: Any, **io_: Any) -> Any:
    return await console.perform(what, consent=Consent(yes=True), io=ExecIO(**io_)).result()


@pytest.fixture
async def make(console, backend) -> Any:
    """A sandbox of the image with Python that serves, made and started through the service."""

    async def one(*asked: str, start: bool = True, **fields: Any) -> SandboxRef:
        fields = {"image": image.NAME, "command": ("python3", "-I", "-S", "-c", _SERVER), **fields}
        spec = SandboxSpec(f"ports-{os.getpid()}-{os.urandom(3).hex()}", ports=asked, **fields)
        return (await done(console, action.Create(spec, *HERE, start=start))).ref

    yield one
    for row in await backend.list():
        if row.managed:
            await done(console, action.Remove(row.ref, force=True))


@pytest.fixture
def at(world) -> Callable[..., socket.socket]:
    """A connection to a place of the engine's host."""

    def connected(host_address: str, seconds: float = 30) -> socket.socket:
        address, _, port = host_address.rpartition(":")
        with network_of(world.pid):
            return socket.create_connection((address.strip("[]"), int(port)), seconds)

    return connected


@pytest.fixture
def free(world) -> Callable[[], int]:
    def one() -> int:
        with network_of(world.pid), socket.create_server(("127.0.0.1", 0)) as sock:
            return sock.getsockname()[1]

    return one


async def answers(at: Callable[..., socket.socket], host_address: str) -> bool:
    def look() -> bool:
        try:
            with at(host_address) as sock:
                sock.sendall(b"ping\n")
                return sock.recv(10) == b"pong"
        except OSError:
            return False

    return await asyncio.to_thread(look)


async def refused(at: Callable[..., socket.socket], host_address: str) -> bool:
    try:
        (await asyncio.to_thread(at, host_address)).close()
    except ConnectionRefusedError:
        return True
    return False


async def told(console, ref: SandboxRef) -> dict[str, tuple[str, str]]:
    found = [fact for fact in (await console.inspect(ref)).effective if fact.field.startswith("port ")]
    assert len(found) == len({fact.field for fact in found}), found
    return {fact.field: (fact.value, fact.note) for fact in found}


def gateway_of(world, ref: SandboxRef) -> dict[str, Any]:
    token = world.inspect(ref.id)["Config"]["Labels"]["sandbox-console.egress"]
    return world.inspect(f"sandbox-console-gateway-{token}")


async def test_quarantine_closes_its_ports_and_its_end_opens_them(console, make, at, free):
    await console.health()  # ports are unsupported until the gateway's image was looked at
    host_address = f"127.0.0.1:{free()}"
    ref = await make(f"{host_address}:7070")
    await soon(lambda: answers(at, host_address), "it answers")
    await done(console, action.Quarantine(ref, "looks odd"))
    assert await refused(at, host_address)
    await done(console, action.Release(ref))
    await soon(lambda: answers(at, host_address), "it answers again")


async def test_a_life_through_the_service(console, make, at, free, world, tmp_path):
    with pytest.raises(Denied, match="could be reached from other machines"):
        await make("0.0.0.0:8080:7070")
    host_address = f"127.0.0.1:{free()}"
    ref = await make(f"{host_address}:7070", "7070", "9999")
    await soon(lambda: answers(at, host_address), "it answers")
    facts = await told(console, ref)
    places = facts["port 7070/tcp"][0].split(", ")
    assert (list(facts), places[0], len(places)) == (["port 7070/tcp", "port 9999/tcp"], host_address, 2)
    assert await answers(at, places[1]), "at the free place, too"
    with pytest.raises(OSError, match=r"reset|closed|refused"), at(facts["port 9999/tcp"][0]) as sock:
        raise_at_end(sock)
    assert (await console.egress.state(ref)).rules == ()
    env = world.inspect(ref.id)["Config"]["Env"] or []
    assert not [entry for entry in env if "PROXY" in entry.upper()]
    said = await command_line(world, tmp_path, "port", (await console.inspect(ref)).name)
    assert f"7070/tcp -> {', '.join(places)}\n" in said

    await done(console, action.Stop(ref, grace_s=0))
    assert {value for value, _ in (await told(console, ref)).values()} == {"not published"}
    assert [await refused(at, one) for one in places] == [True, True]
    await done(console, action.Start(ref))
    await soon(lambda: answers(at, host_address), "it answers after a second start")
    await done(console, action.Restart(ref, grace_s=0))
    await soon(lambda: answers(at, host_address), "it answers after a restart")
    await done(console, action.Pause(ref))
    assert (await told(console, ref))["port 7070/tcp"][0].startswith(host_address)
    await done(console, action.Resume(ref))

    other = f"127.0.0.1:{free()}"
    spec = (await console.inspect(ref)).spec
    new = (await done(console, action.Update(ref, replaced(spec, ports=(f"{other}:7070",))))).ref
    await soon(lambda: answers(at, other), "it answers at its new place")
    assert await refused(at, host_address)
    await done(console, action.Remove(new, force=True))
    assert await refused(at, other)


async def test_what_an_image_says_of_itself_gives_no_hold_on_the_gateway_of_another(console, make, at, world):
    ref = await make("7070")
    host_address = (await told(console, ref))["port 7070/tcp"][0]
    await soon(lambda: answers(at, host_address), "it answers")
    name = f"ports-labelled-{os.getpid()}"
    try:
        world.docker("commit", "-c", "LABEL sandbox-console.gateway=x", ref.id, name)  # with its gateway's token
        other = await make(image=name)
        assert other in [row.ref for row in (await console.list())[0]], "it is not hidden as a gateway, either"
        await done(console, action.Remove(other, force=True))
        assert await answers(at, host_address)
        assert gateway_of(world, ref)["State"]["Running"]
    finally:
        world.docker("rmi", "-f", name)


def replaced(spec: Any, **fields: Any) -> Any:
    from msgspec import structs

    return structs.replace(spec, **fields)


def raise_at_end(sock: socket.socket) -> None:
    """Nobody listens at that port of the guest: the connection ends, in one way or the other."""
    sock.sendall(b"ping\n")
    if not sock.recv(10):
        raise ConnectionResetError("closed")


async def command_line(world, tmp_path, *words: str) -> str:
    config = tmp_path / "config.toml"
    config.write_text(f'[backends.docker]\negress_image = "{image.NAME}"\negress_network = "{OUTSIDE}"\n')
    argv = [sys.executable, "-m", "sandbox_console", "--backend", "docker", "--config", str(config), *words]
    environment = {**os.environ, "DOCKER_HOST": world.url, "SANDBOX_CONSOLE_HOME": str(tmp_path / "other-home")}
    ran = await asyncio.to_thread(subprocess.run, argv, capture_output=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode()


async def run(console, ref: SandboxRef, *argv: str) -> str:
    found = bytearray()

    async def keep(_: object, data: bytes) -> None:
        found.extend(data)

    await done(console, action.Exec(ref, argv), on_output=keep)
    return found.decode()


async def test_neither_the_guest_nor_a_neighbour_comes_in_or_out_by_it(console, make, at, free, world):
    port = free()
    host_address = f"127.0.0.1:{port}"
    ref = await make(f"{host_address}:7070", egress=("good.example.com",), user="0")
    await soon(lambda: answers(at, host_address), "it answers")
    networks = gateway_of(world, ref)["NetworkSettings"]["Networks"]
    [inside] = [one["IPAddress"] for name, one in networks.items() if name != OUTSIDE]
    listener = f":{ports.FIRST}"
    with network_of(world.pid), socket.create_server((HOST, 0)) as victim:
        own = victim.getsockname()[1]
        places = [
            f"{inside}{listener}",
            f"{networks[OUTSIDE]['IPAddress']}{listener}",
            f"{HOST}:{port}",
            f"{HOST}:{own}",
        ]
        said = await run(console, ref, "python3", "-c", _TRY, *places, "127.0.0.1:7070")
        assert said.split() == ["nobody"] * 4 + ["met"]
        # By the proxy, which holds to its list though a port is published.
        asked = await run(console, ref, "python3", "-c", _ASK, *(f"http://{one}/" for one in places))
        assert [line.rpartition("Error ")[2][:3] for line in asked.splitlines()] == ["403"] * 4, asked
        victim.settimeout(0.1)
        with pytest.raises(TimeoutError):
            victim.accept()
    assert {one.reason async for one in console.egress.records(ref)} <= {"not_allowed", "bad_host"}
    # A container beside the gateway: the place is this host's loopback address alone.
    knock = f"echo ping | nc -w 3 {networks[OUTSIDE]['IPAddress']} {ports.FIRST}; echo end"
    assert world.docker("run", "--rm", "--network", OUTSIDE, IMAGE, "sh", "-c", knock) == "end"


async def test_a_killed_gateway_returns_and_answers_again(console, make, at, free, world):
    host_address = f"127.0.0.1:{free()}"
    ref = await make(f"{host_address}:7070", "7070")
    await soon(lambda: answers(at, host_address), "it answers")
    before = gateway_of(world, ref)["State"]["Pid"]
    os.kill(before, 9)
    await soon(lambda: gateway_of(world, ref)["State"]["Pid"] not in (0, before), "it is back")
    await soon(lambda: answers(at, host_address), "it answers again")
    both = (await told(console, ref))["port 7070/tcp"][0].split(", ")
    assert await answers(at, both[1]), "the free place is told anew"


async def test_a_thousand_in_a_row_and_50_mb_both_ways_come_whole(make, at, free, world):
    host_address = f"127.0.0.1:{free()}"
    ref = await make(f"{host_address}:7070")
    await soon(lambda: answers(at, host_address), "it answers")

    def many() -> int:
        found = 0
        for _ in range(1000):
            with at(host_address) as sock:
                sock.sendall(b"ping\n")
                found += sock.recv(10) == b"pong"
        return found

    assert await asyncio.to_thread(many) == 1000
    data = os.urandom(1 << 20) * 50
    sock = at(host_address, 120)
    with sock:
        await asyncio.to_thread(sock.sendall, data)
        sock.shutdown(socket.SHUT_WR)  # the guest hears the end, and still answers
        back = await asyncio.to_thread(read_all, sock)
    assert back[:64].decode() == hashlib.sha256(data).hexdigest()
    assert len(back) == 64 + len(data)
    pid = gateway_of(world, ref)["State"]["Pid"]
    await soon(lambda: len(list(Path(f"/proc/{pid}/fd").iterdir())) < 30, "the gateway keeps no descriptor")


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)


async def test_a_client_that_stays_is_let_go_when_the_sandbox_stops(console, make, at, free):
    host_address = f"127.0.0.1:{free()}"
    ref = await make(f"{host_address}:7070")
    await soon(lambda: answers(at, host_address), "it answers")
    sock = at(host_address)
    with sock:
        sock.sendall(b"ping\n")
        assert await asyncio.to_thread(sock.recv, 4) == b"pong"
        await done(console, action.Stop(ref, grace_s=0))
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(sock.recv, 4) == b""


async def test_a_taken_place_is_a_conflict_that_names_who_has_it(console, backend, make, at, free, world):
    host_address = f"127.0.0.1:{free()}"
    holder = await make(f"{host_address}:7070")
    late = await make(f"{host_address}:7070", start=False)
    with pytest.raises(Conflict) as caught:
        await done(console, action.Start(late))
    names = [(await console.inspect(one)).name for one in (late, holder)]
    assert caught.value.message == f"{names[0]}: {host_address} is taken by {names[1]}"
    assert (await console.inspect(late)).status is Status.CREATED
    assert not gateway_of(world, late)["State"]["Running"]
    elsewhere = replaced((await console.inspect(late)).spec, ports=())
    late = (await done(console, action.Update(late, elsewhere))).ref
    await done(console, action.Start(late))
    with pytest.raises(Conflict, match=f"^{names[0]}: {host_address} is taken by {names[1]}$"):
        await done(console, action.Update(late, replaced(elsewhere, ports=(f"{host_address}:7070",))))
    [late] = [row.ref for row in await backend.list() if row.name == names[0] and row.status is Status.RUNNING]
    # One that ended by itself leaves its gateway, which makes room for who needs its place.
    await run(console, holder, "sh", "-c", "kill -9 -1")
    await soon(lambda: ended(console, holder), "it ends")
    late = (await done(console, action.Update(late, replaced(elsewhere, ports=(f"{host_address}:7070",))))).ref
    await soon(lambda: answers(at, host_address), "the other answers there now")
    with network_of(world.pid), socket.create_server(("127.0.0.2", 0)) as sock:
        taken = sock.getsockname()[1]
        theirs = ("--name", "theirs", "--network", OUTSIDE, "-p", f"127.0.0.1:{taken}:80", IMAGE, "sleep", "99")
        world.docker("run", "-d", *theirs)
        for address, who in (("127.0.0.1", "theirs"), ("127.0.0.2", "another program of the host")):
            with pytest.raises(Conflict, match=f"{address}:{taken} is taken by {who}$"):
                await make(f"{address}:{taken}:7070")
        world.docker("rm", "-f", "theirs")
    assert {row.ref for row in await backend.list() if row.managed} == {holder, late}, "what cannot start is removed"


async def ended(console, ref: SandboxRef) -> bool:
    return (await console.inspect(ref)).status is Status.EXITED


async def test_where_it_cannot_be_bound_is_told(backend, world, tmp_path, permit):
    await backend.open()

    async def start(*asked: str, using: DockerBackend = backend) -> Any:
        spec = SandboxSpec(f"ports-{os.urandom(3).hex()}", image.NAME, ("sleep", "1000"), ports=asked)
        ref = await using.create(await permit("create"), spec, (), lambda _: None)
        try:
            await using.start(await permit("start"), ref, ())
            return await using.inspect(ref)
        finally:
            gateway = gateway_of(world, ref)
            await using.remove(await permit("remove"), ref, True)
            assert gateway["State"]["Running"] == ("::1" in asked[0])

    found = await start("[::1]:7070")
    [host_address] = [fact.value for fact in found.effective if fact.field == "port 7070/tcp"]
    assert host_address.startswith("[::1]:")
    with pytest.raises(BackendError, match="cannot assign requested address") as caught:
        await start("192.0.2.7:8080:7070")
    assert "192.0.2.7" in caught.value.message
    nowhere = DockerBackend("default", tmp_path / "state", Options(egress_image=image.NAME, egress_network="none"))
    await nowhere.open()
    try:
        with pytest.raises(BackendError, match=r"gateway of|does not answer at"):
            await start("7070", using=nowhere)
    finally:
        await nowhere.close()


async def test_without_a_gateway_it_is_unsupported_and_says_why(world, monkeypatch, permit):
    monkeypatch.setenv("DOCKER_HOST", world.url)
    backend = DockerBackend("default")
    await backend.open()
    try:
        spec = SandboxSpec("refused", image.NAME, ("sleep", "1"), ports=("80",))
        with pytest.raises(Unsupported, match=r"cannot publish ports: .* needs a state folder"):
            await backend.create(await permit("create"), spec, (), lambda _: None)
    finally:
        await backend.close()


_ENDPOINT = "driver failed programming external connectivity on endpoint g (ab12): "


@pytest.mark.parametrize(
    "message",
    [
        f"{_ENDPOINT}Bind for {{}} failed: port is already allocated",
        f"{_ENDPOINT}Error starting userland proxy: listen tcp4 {{}}: bind: address already in use",
        f"failed to set up container networking: {_ENDPOINT}failed to bind host port {{}}/tcp: address already in use",
    ],
)
def test_what_engines_say_of_a_taken_place(message):
    """20.10 of the port that another container has and that a program has; 28 of both."""
    asked = parse_all(("127.0.0.1:8080:80", "127.0.0.2:8080:80", "80"))
    found = ports.wanted(asked, message.format("127.0.0.2:8080"))
    assert found is not None
    assert found.host_address == "127.0.0.2:8080"
    assert ports.wanted(asked, message.format("127.0.0.1:18080")) is None
    assert ports.wanted(asked, "Address already in use") is None


async def test_traffic_on_a_port_is_use_and_its_end_is_not(console, make, at, free, world):
    host_address = f"127.0.0.1:{free()}"
    ref = await make(f"{host_address}:7070", idle_timeout_s=3.0)
    last = began = time.time()
    while time.time() < began + 5 and time.time() < last + 2.5:  # but for a halt of ours
        if await answers(at, host_address):
            last = time.time()
        await asyncio.sleep(0.1)
    with at(host_address):  # open, and silent
        async with asyncio.timeout(30):
            while (found := await console.inspect(ref)).status is not Status.EXITED:
                await asyncio.sleep(0.1)
    assert found.exit.reason == "idle_timeout_s ran out"
    assert found.finished_at > last + 2
    await soon(lambda: _stopped(world, ref), "its gateway is stopped, too")


async def _stopped(world, ref: SandboxRef) -> bool:
    return not gateway_of(world, ref)["State"]["Running"]
