"""Checks that an empty allowlist means no network, with ten ways out from inside, against listeners that notice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually, wait_s

_LISTENER = """
import select, socket, sys
socks = []
for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            one = socket.socket(family, kind)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address, socks[0].getsockname()[1] if socks else 0))
        except OSError:
            continue
        if kind == socket.SOCK_STREAM:
            one.listen(16)
        socks.append(one)
print(socks[0].getsockname()[1], flush=True)
try:
    addresses = sorted({line.split()[1] for line in open("/proc/net/fib_trie") if "|--" in line})
except OSError:
    addresses = []
print(*addresses, flush=True)
for one in socks:
    one.setblocking(False)
while True:
    ready = select.select(socks, [], [])[0]
    for one in sorted(ready, key=lambda one: one is socks[0]):  # where the check knocks comes last
        try:
            while True:
                if one.type == socket.SOCK_STREAM:
                    client, place = one.accept()
                    client.close()
                else:
                    place = one.recvfrom(64)[1]
                print(place[1], flush=True)
        except BlockingIOError:
            pass
"""
"""Prints the port of each client. Who came before another is printed before it."""

# A POSIX sh with busybox's nc, or bash's own /dev/tcp and /dev/udp.
REACH = """
tcp() { if command -v nc >/dev/null; then echo out | nc -w 2 "$1" "$2"
        else timeout 3 bash -c "exec 3<>/dev/tcp/$1/$2 && echo out >&3"; fi; }
hear() { if command -v nc >/dev/null; then nc -w 2 "$1" "$2" </dev/null
        else timeout 3 bash -c "exec 3<>/dev/tcp/$1/$2 && cat <&3"; fi; }
udp() { if command -v bash >/dev/null; then timeout 3 bash -c "echo out >/dev/udp/$1/$2"
        else echo out | nc -u -w 2 "$1" "$2"; fi; }
"""
_GREETER = """
if command -v nc >/dev/null; then while :; do echo hello | nc -l -p 7070; done; fi
exec python3 -I -S -c '
import socket
server = socket.create_server(("", 7070))
while True:
    client = server.accept()[0]
    client.sendall(b"hello\\n")
    client.close()
'
"""
_TOOLS = "command -v nc || command -v bash"

_WAYS = {
    "the_hosts_loopback": "tcp 127.0.0.1 PORT",
    "each_address_of_the_host": "for a in ADDRESSES; do tcp $a PORT; done",
    "the_loopback_by_ipv6": "tcp ::1 PORT; tcp ::ffff:127.0.0.1 PORT",
    "an_address_written_as_a_number": "tcp 2130706433 PORT; tcp 0x7f000001 PORT; tcp 0 PORT",
    "a_datagram": "for a in 127.0.0.1 ADDRESSES; do udp $a PORT; done",
    "the_metadata_service": "tcp 169.254.169.254 80 && echo OUT",
    "a_name_by_dns": "(getent hosts example.com || nslookup example.com) 2>&1 | grep '[0-9] *example' && echo OUT",
    "a_route_of_its_own": "(ip link add out type dummy || ip route add default dev lo) && echo OUT",
    "a_namespace_of_its_own": "unshare -rn nc -w 2 127.0.0.1 PORT; nsenter -t 1 -n nc -w 2 127.0.0.1 PORT",
    "a_packet_past_the_stack": "(ping -c 1 -W 2 ADDRESS || ping -c 1 -W 2 192.0.2.1) && echo OUT",
}
# With its own kernel, a guest may set any route but still reaches nothing. The other end of its network may accept a
# connection only to refuse it, so the check requires an answer that is not a refusal.
_OWN_KERNEL = {
    "the_metadata_service": "told=$(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 169.254.169.254 80); "
    'case "$told" in "" | *network_policy_denied*) ;; *) echo "OUT $told" ;; esac',
    "a_route_of_its_own": "ip link add out type dummy; ip link set out up; ip route add default dev out; "
    "ip route add default dev lo; for a in ADDRESSES; do tcp $a PORT; done",
}


class Listener:
    """A program in the network of the backend's host that reports each client."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, addresses: list[str]) -> None:
        self.process, self.port, self.addresses = process, port, addresses
        self.clients: list[int] = []
        self.knocks = 0
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.clients.append(int(line))

    @property
    def reached(self) -> int:
        """How many guests have been reported so far."""
        return len(self.clients) - self.knocks

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        await self._task


@asynccontextmanager
async def listening(rig: Rig) -> AsyncIterator[Listener]:
    """A listener on every address of the host, TCP and UDP."""
    process = await asyncio.create_subprocess_exec(
        *rig.profile.host_command, sys.executable, "-I", "-S", "-c", _LISTENER, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    found = re.findall(rb"[0-9.]+", await process.stdout.readline())
    listener = Listener(process, port, [one.decode() for one in found if not one.startswith(b"127.")])
    try:
        yield listener
    finally:
        await listener.close()


class DenyAll(Checks):
    @pytest.mark.parametrize("way", [*_WAYS])
    async def test_no_way_out_by(self, rig: Rig, way: str) -> None:
        rig.needs_sh(Capability.EGRESS_NONE)
        ref = await (rig.make() if way == "a_route_of_its_own" else rig.idle())
        await needs_tools(rig, ref)
        async with listening(rig) as listener:
            addresses = listener.addresses[:6] or ["192.0.2.1"]
            words = {"ADDRESSES": " ".join(addresses), "ADDRESS": addresses[-1], "PORT": str(listener.port)}
            text = (_OWN_KERNEL if rig.profile.own_kernel else {}).get(way, _WAYS[way])
            script = re.sub("|".join(words), lambda word: words[word[0]], text)
            ran = await rig.sh(ref, f"{REACH}\n{script}")
            assert b"OUT" not in ran.out, (ran.out, ran.err)
            assert not await guests(rig, listener), f"the guest came through: {script}"

    async def test_a_published_port_is_no_way_out(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EGRESS_NONE, Capability.PORTS)
        ref = await rig.make(ports=("7070",))
        await needs_tools(rig, ref)
        async with listening(rig) as listener:
            places = f"127.0.0.1 169.254.169.254 {' '.join(listener.addresses[:6])} $gateways"
            # What the network of a published port may have: a resolver and routers.
            found = "gateways=$(awk '/^nameserver/ {print $2}' /etc/resolv.conf; ip route | awk '/via/ {print $3}')"
            await rig.sh(
                ref, f"{REACH}\n{found}\nfor a in {places}; do tcp $a {listener.port} & udp $a 53 & done; wait"
            )
            named = await rig.sh(ref, _WAYS["a_name_by_dns"])
            assert b"OUT" not in named.out, (named.out, named.err)
            assert not await guests(rig, listener), "the guest came through"

    async def test_a_neighbour_is_out_of_reach(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EGRESS_NONE)
        ref = await rig.idle()
        await needs_tools(rig, ref)
        if not (await rig.sh(ref, "command -v nc || command -v python3")).out:
            pytest.skip("its image has neither nc nor python3 to listen with")
        other = await rig.script(_GREETER)

        async def greets() -> bool:
            return b"hello" in (await rig.sh(other, f"{REACH}\nhear 127.0.0.1 7070")).out

        await eventually(greets, "the neighbour's own listener does not answer it")
        looked = await rig.sh(other, "cat /proc/net/fib_trie")
        addresses = sorted(set(re.findall(r"\|-- ([0-9.]+)", looked.out.decode())))[:8]
        ran = await rig.sh(ref, f"{REACH}\nfor a in 127.0.0.1 {' '.join(addresses)}; do hear $a 7070; done")
        assert b"hello" not in ran.out


async def needs_tools(rig: Rig, ref: SandboxRef) -> None:
    """Skip if the image has no program that can connect."""
    if not (await rig.sh(ref, _TOOLS)).out:
        pytest.skip("its image has neither nc nor bash to try it with")


async def guests(rig: Rig, listener: Listener) -> int:
    """How many guests came to a listener that works: it reports a client from the host itself, after all others."""
    knock = f"import socket; print(socket.create_connection(('127.0.0.1', {listener.port}), 10).getsockname()[1])"
    words = [*rig.profile.host_command, sys.executable, "-I", "-S", "-c", knock]
    process = await asyncio.create_subprocess_exec(*words, env=dict(os.environ), stdout=subprocess.PIPE)
    async with asyncio.timeout(wait_s()):
        out, _ = await process.communicate()
    assert process.returncode == 0

    async def told() -> bool:
        return int(out) in listener.clients

    await eventually(told, "the listener does not report who connects")
    listener.knocks += 1
    return listener.reached
