"""A port of a running sandbox at a place of this machine: real bubblewrap without any network, real servers in it."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import socket
import subprocess
from typing import Any

import pytest
from tests.bubblewrap.conftest import until
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.errors import Conflict, Denied, InvalidSpec, Unsupported, UsageError
from sandbox_console.model.action import Create, Exec, Forward, Pause, Remove, Resume, Stop
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Rules
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.service.effects import forward_connection
from sandbox_console.service.effects.forward_programs import _ADDRESS, _WAYS
from sandbox_console.service.sessions.forward import forward

SIZE = 20 << 20
# Besides the files: what is at /silent says nothing for ever, at /end it tells how much came, once that has ended.
_SERVER = f"""
import http.server, os, socket, threading, time
open("/tmp/big", "wb").write(os.urandom({SIZE}))
open("/tmp/one", "wb").write(b"x")
def raw():
    server = socket.create_server(("127.0.0.1", 7000))
    while True:
        threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()
def answer(client):
    if client.recv(6) != b"count\\n":
        time.sleep(1000)
    size = 0
    while part := client.recv(65536):
        size += len(part)
    client.sendall(str(size).encode())
    client.close()
threading.Thread(target=raw, daemon=True).start()
os.chdir("/tmp")
http.server.ThreadingHTTPServer.request_queue_size = 64
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), http.server.SimpleHTTPRequestHandler).serve_forever()
"""

bubblewrap = requires("bubblewrap")


def backends(home):
    return BubblewrapProvider.backends(BackendSettings(home / "state" / "bubblewrap", {}))


@pytest.fixture
async def console(home):
    async with open_console(Config(), backends=backends(home)) as made:
        yield made
        for one in (await made.list())[0]:
            await made.perform(Remove(one.ref, force=True)).result()


@pytest.fixture
async def box(console):
    """A sandbox that reaches nothing, and serves."""
    spec = SandboxSpec("web", image="host", command=("python3", "-u", "-c", _SERVER))
    ref = (await console.perform(Create(spec, "bubblewrap", "local")).result()).ref
    command = "import socket; [socket.create_connection(('127.0.0.1', port), 1) for port in (7000, 8000)]"

    async def serves():
        return (await console.perform(Exec(ref, ("python3", "-c", command))).result()).exit_code == 0

    await until(serves)
    return ref


async def held(console, ref, port=8000, **fields: Any):
    return await forward(console, Forward(ref, port, **fields), consent=Consent())


def port_of(one):
    return int(one.forwarding.host_address.rpartition(":")[2])


async def get(one, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(one))
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    body = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    return body


async def inside(console, ref, *argv):
    return (await console.perform(Exec(ref, argv)).result()).stdout


async def carriers(console, ref):
    """The processes in the sandbox that carry connections."""
    found = await console.inside.processes(ref)
    return [one for one in found if "7000" in one.command and "answer" not in one.command]  # not the server itself


async def last_forward(console):
    rows = await console.history(AuditQuery(action="forward", limit=1))
    return rows[0]


@bubblewrap
async def test_a_server_of_a_sandbox_without_network_is_reached_whole_and_by_many_at_once(console, box):
    one = await held(console, box)
    assert (await last_forward(console)).outcome == "", "the attempt stands while it lasts"
    big = hashlib.sha256(await get(one, "/big")).hexdigest()
    assert big == (await inside(console, box, "sha256sum", "/tmp/big")).split()[0].decode()
    # More than are carried at once: the rest waits to be accepted.
    assert await asyncio.gather(*(get(one, "/one") for _ in range(80))) == [b"x"] * 80
    await one.release()
    assert await one.ended() == ""
    row = await last_forward(console)
    assert row.outcome == "ok"
    told = {name: row.end.body[name] for name in ("place", "connections")}
    assert told == {"place": one.forwarding.host_address, "connections": 81}
    assert row.end.body["bytes_out"] > SIZE + 80
    assert {"port": 8000, "address": "127.0.0.1", "host_port": 0}.items() <= row.attempt.body.items()
    with pytest.raises(ConnectionRefusedError):
        await get(one, "/one")
    again = await held(console, box, host_port=port_of(one))
    assert await get(again, "/one") == b"x"
    await again.release()


@bubblewrap
async def test_a_client_ends_its_half_and_one_that_goes_leaves_nothing_behind(console, box, monkeypatch):
    monkeypatch.setattr(forward_connection, "LINGER_S", 1.0)
    one = await held(console, box, 7000)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(one))
    writer.write(b"count\n")
    for _ in range(64):
        writer.write(bytes(65536))
        await writer.drain()
    writer.write_eof()
    assert await reader.read() == str(64 * 65536).encode()
    writer.close()
    _, silent = await asyncio.open_connection("127.0.0.1", port_of(one))
    silent.write(b"silent")
    await until(lambda: carriers(console, box))
    # Nobody in the sandbox reads it: it waits in every buffer on the way when its client goes.
    silent.write(bytes(32 << 20))
    silent.transport.abort()

    async def gone():
        return not await carriers(console, box)

    await until(gone)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(one))
    writer.write(b"silent")
    await until(lambda: carriers(console, box))
    await one.release()
    assert await carriers(console, box) == []
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


@bubblewrap
async def test_a_forward_into_a_paused_sandbox_can_be_let_go(console, box):
    one = await held(console, box, 7000)
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(one))
    writer.write(b"silent")
    await until(lambda: carriers(console, box))
    await console.perform(Pause(box)).result()
    await asyncio.wait_for(one.release(), 30)
    writer.close()
    await console.perform(Resume(box)).result()

    async def gone():
        return not await carriers(console, box)

    await until(gone)


@bubblewrap
async def test_nothing_that_listens_is_a_reset_and_the_end_of_the_sandbox_is_its_end(console, box):
    nobody, one = await held(console, box, 9), await held(console, box)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(nobody))
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    await console.perform(Stop(box, 0)).result()
    assert await asyncio.wait_for(nobody.ended(), 30) == await one.ended() == "web is no longer running: it is exited"
    assert (await last_forward(console)).end.body["end"] == await one.ended()
    with pytest.raises(Conflict):
        await held(console, box)


@bubblewrap
async def test_what_cannot_be_is_told_before_anything_listens(console, box, home):
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with taken, pytest.raises(Conflict, match=rf"port {port} of this host is taken at 127\.0\.0\.1"):
        await held(console, box, host_port=port)
    with pytest.raises(UsageError, match=r"192\.0\.2\.1 is not an address of this host"):
        async with open_console(Config(policy=Rules(publish="any")), backends=backends(home)) as other:
            await held(other, box, address="192.0.2.1")
    for wrong in ({"port": 0}, {"address": "localhost"}, {"host_port": 70000}):
        with pytest.raises(InvalidSpec):
            await held(console, box, **wrong)
    spec = SandboxSpec("led", image="host", egress=("acme.org",))
    led = (await console.perform(Create(spec, "bubblewrap", "local")).result()).ref
    with pytest.raises(InvalidSpec, match="belongs to its egress gateway"):  # no host's program is to use that way out
        await held(console, led, 3128)
    for rules, fields in (
        (Rules(), {"address": "0.0.0.0"}),
        (Rules(publish="none"), {}),
        (Rules(deny=("forward",)), {}),
        (Rules(read_only=True), {}),
    ):
        async with open_console(Config(policy=rules), backends=backends(home)) as other:
            with pytest.raises(Denied):
                await held(other, box, **fields)
            assert (await last_forward(other)).outcome == "denied"


@bubblewrap
async def test_an_image_without_a_program_for_it_says_so(console):
    script = "/bin/mkdir /tmp/only && /bin/ln -s /bin/sh /tmp/only/sh; exec /bin/sleep 1000"
    spec = SandboxSpec("bare", image="host", env={"PATH": "/tmp/only"}, command=("/bin/sh", "-c", script))
    ref = (await console.perform(Create(spec, "bubblewrap", "local")).result()).ref
    for _ in range(2):  # before there is a sh, perhaps, and with it alone
        with pytest.raises(Unsupported, match="bare has no program that could connect to a port"):
            await held(console, ref)
        await until(lambda: inside(console, ref, "/bin/ls", "/tmp/only/sh"))
    assert (await last_forward(console)).outcome == "unsupported"


@pytest.mark.parametrize("way", ["busybox", "python3", "bash"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::"])
async def test_each_program_connects_to_whoever_listens_and_ends_with_them(way, address):
    if not shutil.which(way):
        pytest.skip(f"not installed: {way}")
    try:
        server = await asyncio.start_server(_echo, address, 0)
    except OSError as error:
        pytest.skip(f"{address}: {error.strerror}")
    port = server.sockets[0].getsockname()[1]
    command = ("sh", "-c", _ADDRESS + _WAYS[way], "sh", str(port), f"{port:04X}")
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b"hello\n")
    async with asyncio.timeout(30):
        assert (await process.stdout.read(), await process.wait()) == (b"hello\n", 0)
    server.close()
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    async with asyncio.timeout(30):
        assert await process.stdout.read() == b""
        assert await process.wait() != 0


async def _echo(reader, writer):
    writer.write(await reader.readline())
    writer.close()
