"""The machine around a gateway: its own addresses are not the world, whatever network a rule names."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from tests.egress import world

from sandbox_console.egress.addresses import METADATA
from sandbox_console.egress.connection import Connection, Refused
from sandbox_console.egress.decide import address_verdict
from sandbox_console.egress.host_addresses import Host, answers_4, local_4, local_6, routed_6
from sandbox_console.egress.local_route import stays_here
from sandbox_console.egress.upstream import dial
from sandbox_console.model.egress import EgressRule

OURS = "93.184.220.7"


def allow(*patterns: str) -> tuple[EgressRule, ...]:
    return tuple(map(EgressRule, patterns))


def test_a_network_does_not_open_an_own_address_and_its_name_does():
    for text, network in (("10.1.2.3", "10.0.0.0/8"), ("93.184.220.7", "93.0.0.0/8"), ("fd00::1", "fd00::/8")):
        address = ipaddress.ip_address(text)
        said = address_verdict(allow(network), address, 443, own=True)
        assert (said.allowed, said.reason) == (False, "own_host")
        assert text in said.hint
        assert address_verdict(allow(network, text), address, 443, own=True).rule == text
        assert address_verdict(allow(network), address, 443).allowed


@pytest.mark.parametrize("address", sorted(METADATA, key=str))
def test_metadata_is_opened_by_its_address_alone(address):
    whole = "0.0.0.0/0" if address.version == 4 else "::/0"
    assert not address_verdict((), address, 443).allowed
    assert address_verdict(allow(whole), address, 443).reason == "own_host"
    assert address_verdict(allow(str(address)), address, 443).allowed
    if address.version == 4:
        mapped = ipaddress.ip_address(f"::ffff:{address}")
        assert address_verdict(allow(whole), mapped, 443).reason == "own_host"


def test_the_kernels_files_tell_every_address_of_this_machine():
    folder = Path("/proc/net")
    found = local_4((folder / "fib_trie").read_text())
    assert any(ipaddress.ip_address("127.0.0.1") in network for network in found)
    for network in found:
        assert stays_here(network[0])
    if (folder / "if_inet6").exists():
        assert all(network.prefixlen == 128 for network in local_6((folder / "if_inet6").read_text()))
    assert local_6("00000000000000000000000000000001 01 80 10 80       lo\n") == {ipaddress.ip_network("::1")}


def test_it_is_read_anew_and_what_was_known_stays_when_it_cannot_be(tmp_path, monkeypatch):
    address, table = ipaddress.ip_address(OURS), tmp_path / "fib_trie"
    table.write_text("Local:\n  |-- 10.0.0.1\n     /32 host LOCAL\n")
    host = Host(tmp_path)
    monkeypatch.setattr("sandbox_console.egress.host_addresses._LIVE_S", -1.0)
    assert not host.has(address)
    table.write_text(f"Local:\n  |-- {OURS}\n     /32 link UNICAST\n     /32 host LOCAL\n")
    assert host.has(address)
    assert host.has(ipaddress.ip_address(f"::ffff:{OURS}"))
    table.unlink()
    assert host.has(address)
    assert not Host(None).has(address)


def test_the_gateway_refuses_a_name_at_an_address_of_the_machine_around_it(gateway, tmp_path):
    """From the moment on that the machine has it; a network in a rule does not open it."""
    (tmp_path / "fib_trie").write_text("Local:\n")
    gateway.stop()
    gateway.allow("good.example.com", "93.184.0.0/16", hosts={"good.example.com": (OURS,)})
    (tmp_path / "fib_trie").write_text(f"Local:\n |-- {OURS}\n   /32 host LOCAL\n")
    gateway.start("--host", str(tmp_path))
    said = world.exchange(gateway.address, b"GET http://good.example.com/ HTTP/1.1\r\nHost: good.example.com\r\n\r\n")
    assert b" 403 " in said
    assert b"own_host" in said
    gateway.allow("good.example.com")
    said = world.exchange(gateway.address, b"GET http://good.example.com/ HTTP/1.1\r\nHost: good.example.com\r\n\r\n")
    assert b"not_global" in said
    assert [reason for _, reason in gateway.reasons()] == ["own_host", "not_global"]


def test_a_fresh_look_sees_what_the_machine_got_a_moment_ago(tmp_path):
    (tmp_path / "fib_trie").write_text("Local:\n")
    host, address = Host(tmp_path), ipaddress.ip_address(OURS)
    assert not host.has(address)
    (tmp_path / "fib_trie").write_text(f"Local:\n |-- {OURS}\n   /32 host LOCAL\n")
    assert not host.has(address), "looked at a moment ago"
    assert host.has(address, fresh=True)


@pytest.mark.parametrize("becomes_own", [False, True])
async def test_an_address_that_becomes_the_machines_while_it_is_connected_to_is_refused(becomes_own):
    """As the kernel repeats a SYN until somebody has the address."""
    task = cast("asyncio.Task[None]", asyncio.current_task())
    looked: list[bool] = []

    def own(_address: object, _port: int, fresh: bool) -> bool:
        looked.append(fresh)
        return becomes_own and fresh

    async def resolver(_name: str, _hosts: object) -> list[ipaddress.IPv4Address]:
        return [ipaddress.IPv4Address("127.0.0.1")]

    with socket.create_server(("127.0.0.1", 0)) as server:
        flow = Connection("good.example.com", server.getsockname()[1], "CONNECT", "", task)
        dialling = dial(flow, allow(f"127.0.0.0/8:{flow.port}"), {}, resolver, own)
        if becomes_own:
            with pytest.raises(Refused) as caught:
                await dialling
            assert (caught.value.reason, caught.value.address) == ("own_host", "127.0.0.1")
            assert server.accept()[0].recv(1) == b"", "it was closed, and nothing was said"
        else:
            (await dialling).close()
    assert looked == [False, True]


ARP = """IP address       HW type     Flags       HW address            Mask     Device
10.213.0.1       0x1         0x{}         02:42:0a:d5:00:01     *        eth1
10.213.0.11      0x1         0x2         02:42:0a:d5:00:0b     *        eth1
"""


@pytest.mark.parametrize(("flags", "answers"), [("0", False), ("2", True), ("6", True)])
def test_who_answers_for_the_bridges_address_is_known_by_the_kernels_table(flags, answers):
    assert answers_4(ARP.format(flags), "10.213.0.1") is answers
    assert not answers_4(ARP.format(flags), "10.213.0.2")
    assert not answers_4("", "10.213.0.1")


ROUTES = "Iface Destination Gateway Flags\n{} 00000000 {} 0003\n{} 0000D55D 00000000 0001\n"


def table(router: str) -> str:
    number = int.from_bytes(ipaddress.ip_address(router).packed, sys.byteorder)
    return ROUTES.format("eth0", f"{number:08X}", "eth0")


def test_who_takes_packets_on_is_refused_and_tells_whether_the_files_are_of_the_network_around(tmp_path):
    routes = tmp_path / "route"
    routes.write_text(table("172.17.0.1"))
    (tmp_path / "fib_trie").write_text("Local:\n  |-- 10.0.0.1\n     /32 host LOCAL\n")
    host = Host(tmp_path, routes)
    assert host.apart
    assert host.has(ipaddress.ip_address("172.17.0.1"))
    assert host.has(ipaddress.ip_address("10.0.0.1"))
    assert not host.has(ipaddress.ip_address("172.17.0.2"))
    (tmp_path / "fib_trie").write_text("Local:\n  |-- 172.17.0.1\n     /32 host LOCAL\n")
    assert not Host(tmp_path, routes).apart
    routes.unlink()
    assert Host(tmp_path, routes).apart, "nothing is told for sure"


@pytest.mark.parametrize(
    "text", ["fe80::1%eth0", "fe80::1%1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "::ffff:0a00:0001", "fd00::7", "::1"]
)
def test_other_forms_of_an_own_address_are_refused_under_any_network(tmp_path, text):
    (tmp_path / "fib_trie").write_text("Local:\n  |-- 10.0.0.1\n     /32 host LOCAL\n")
    own = ("fe80::1", "fd00::7", "::1")
    (tmp_path / "if_inet6").write_text(
        "".join(f"{ipaddress.IPv6Address(one).packed.hex()} 02 40 20 80 eth0\n" for one in own)
    )
    host, address = Host(tmp_path, tmp_path / "none"), ipaddress.ip_address(text)
    assert host.has(address)
    wide = allow("0.0.0.0/0", "::/0", "10.0.0.0/8", "fe80::/10", "fd00::/8")
    assert address_verdict(wide, address, 443, own=host.has(address)).reason in ("own_host", "not_global")


LOOPBACK = ("127.0.0.2", "127.1.2.3", "0.0.0.0", "::", "::1", "::ffff:127.0.0.3", "::ffff:0.0.0.0")


@pytest.mark.parametrize("address", LOOPBACK)
@pytest.mark.parametrize("by_name", [True, False])
def test_no_network_in_a_rule_leads_to_the_loopback_of_the_machine(gateway, address, by_name):
    """A server that hears every address of the machine, and rules as wide as can be."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as hears:
        hears.setblocking(False)
        port = hears.getsockname()[1]
        wide = (f"0.0.0.0/0:{port}", f"127.0.0.0/8:{port}", f"[::/0]:{port}")
        gateway.allow(f"good.example.com:{port}", *wide, hosts={"good.example.com": (address,)})
        host = "good.example.com" if by_name else f"[{address}]" if ":" in address else address
        said = world.exchange(
            gateway.address, f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        )
        assert b" 403 " in said
        assert [reason for _, reason in gateway.reasons()] == ["own_host"]
        with pytest.raises(BlockingIOError):
            hears.accept()


@pytest.mark.parametrize(
    "text", ["169.254.1.1", "169.254.42.42", "169.254.0.23", "fe80::1", "fd00:42::42", "fd00:ec2::254", "ff02::1"]
)  # fmt: skip
def test_no_network_in_a_rule_leads_to_the_link_or_to_any_clouds_metadata(text):
    wide = allow("0.0.0.0/0", "::/0", "169.254.0.0/16", "fe80::/10", "fd00::/8", "ff00::/8")
    assert address_verdict(wide, ipaddress.ip_address(text), 443).reason == "own_host"


_ROUTE_ALONE = """
import ipaddress, subprocess, sys
from pathlib import Path
for words in ("link set lo up", "-6 route add local 2001:470:1::/64 dev lo", "route add local 198.18.7.0/24 dev lo"):
    subprocess.run(["busybox", "ip", *words.split()], check=True)
from sandbox_console.egress.host_addresses import Host
from sandbox_console.egress.local_route import stays_here
host = Host(Path("/proc/net"), Path("/none"))
for text in sys.argv[1:]:
    address = ipaddress.ip_address(text)
    print(text, stays_here(address), host.has(address))
"""


def test_a_public_address_that_is_local_by_a_route_alone_is_the_machines_own():
    texts = ["2001:470:1::7", "198.18.7.9", "2001:470:2::7", "93.184.220.7"]
    words = ["unshare", "-rn", sys.executable, "-c", _ROUTE_ALONE, *texts]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = [f"{text} {own} {own}" for text, own in zip(texts, (True, True, False, False), strict=True)]
    assert done.stdout.splitlines() == wanted


def test_the_kernels_ipv6_routes_tell_local_and_anycast_ones():
    none, number = "0" * 32, int(ipaddress.ip_address("2001:470::"))
    rows = [
        f"{number + at:032x} 40 {none} 00 {none} 00 1 0 {flags} lo\n"
        for at, flags in ((0, "80000001"), (1 << 64, "00100001"))
    ]
    rows += [f"{none} 00 {none} 00 {none} ffffffff 00000001 00000000 00200200 lo\n"]
    assert routed_6("".join(rows)) == set(map(ipaddress.ip_network, ("2001:470::/64", "2001:470:0:1::/64")))


def test_without_a_free_descriptor_no_address_is_taken_for_anothers(tmp_path):
    (tmp_path / "fib_trie").write_text("Local:\n")
    host, address = Host(tmp_path, tmp_path / "none"), ipaddress.ip_address(OURS)
    assert not host.has(address, fresh=True)
    assert not stays_here(address)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        found = host.has(address, fresh=True), stays_here(address)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == (True, True)
