"""Checks published ports: this host serves them at the requested address while the sandbox runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest

from sandbox_console.errors import Conflict
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually, wait_s

_PORT = 7070
# One connection at a time: it greets, and logs what it receives.
_GREETER = """
if command -v nc >/dev/null; then while :; do echo greeting | nc -l -p 7070; done; fi
exec python3 -I -S -u -c '
import socket
server = socket.create_server(("", 7070))
while True:
    client = server.accept()[0]
    client.sendall(b"greeting\\n")
    client.settimeout(5)
    print(client.recv(100).decode())
    client.close()
'
"""
_KNOCK = """
import socket, sys
try:
    sock = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
    sock.sendall(b"a word from outside\\n")
    print(sock.recv(100).decode())
except OSError as error:
    print(error)
"""
_FREE = "import socket; sock = socket.socket(); sock.bind(('127.0.0.1', 0)); print(sock.getsockname()[1])"


async def _at_the_host(rig: Rig, program: str, *words: str) -> str:
    """Run a program in the network of the backend's host and return its output."""
    argv = [*rig.profile.host_command, sys.executable, "-I", "-S", "-c", program, *words]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(wait_s()):
        return (await process.communicate())[0].decode().strip()


def _greets(rig: Rig, address_and_port: str) -> Callable[[], Awaitable[bool]]:
    address, _, port = address_and_port.rpartition(":")

    async def look() -> bool:
        return await _at_the_host(rig, _KNOCK, address, port) == "greeting"

    return look


async def _place(rig: Rig, ref: SandboxRef) -> str:
    """The address of the port according to the backend."""
    [place] = [fact.value for fact in (await rig.look(ref)).effective if fact.field == f"port {_PORT}/tcp"]
    return place


async def _serving(rig: Rig, *ports: str, start: bool = True) -> SandboxRef:
    rig.needs_sh(Capability.PORTS)
    ref = await rig.script(_GREETER, ports=ports, start=start)
    if start and not (await rig.sh(ref, "command -v nc || command -v python3")).out:
        pytest.skip("its image has neither nc nor python3 to listen with")
    return ref


class Ports(Checks):
    async def test_a_published_port_answers_at_its_place_alone(self, rig: Rig) -> None:
        port = f"127.0.0.1:{await _at_the_host(rig, _FREE)}"
        ref = await _serving(rig, f"{port}:{_PORT}")
        assert await _place(rig, ref) == port
        await eventually(_greets(rig, port), "nobody answers at the published port")

        async def heard() -> bool:
            return b"a word from outside" in await rig.text(ref)

        await eventually(heard, "what a client sends does not come to the guest")
        elsewhere = await _at_the_host(rig, _KNOCK, "127.0.0.2", port.rpartition(":")[2])
        assert "refused" in elsewhere, f"it is open at another address: {elsewhere}"

    async def test_a_stop_closes_a_port_and_a_start_opens_it(self, rig: Rig) -> None:
        port = f"127.0.0.1:{await _at_the_host(rig, _FREE)}"
        ref = await _serving(rig, f"{port}:{_PORT}")
        await eventually(_greets(rig, port), "nobody answers at the published port")
        await rig.stop(ref, grace_s=0.2)
        answer = await _at_the_host(rig, _KNOCK, *port.split(":"))
        assert "refused" in answer, f"it is open though the sandbox has stopped: {answer}"
        await rig.start(ref)
        await eventually(_greets(rig, port), "nobody answers after a second start")

    async def test_a_port_without_a_place_has_a_free_one_that_is_told(self, rig: Rig) -> None:
        ref = await _serving(rig, str(_PORT))
        place = await _place(rig, ref)
        assert place.startswith("127.0.0.1:"), place
        await eventually(_greets(rig, place), f"nobody answers at {place}")

    async def test_a_place_that_another_has_is_a_conflict(self, rig: Rig) -> None:
        number = await _at_the_host(rig, _FREE)
        await _serving(rig, f"{number}:{_PORT}")
        error = await rig.refusal(_serving(rig, f"{number}:{_PORT}"), "a place of the host that another sandbox has")
        assert isinstance(error, Conflict), error
        assert number in error.message, error
