"""Finds the addresses of the machine around a gateway that has its own network, live from the kernel's files."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sandbox_console.egress.addresses import Address, plain
from sandbox_console.model.hosts import Network

_LIVE_S = 1.0
FILES = ("fib_trie", "if_inet6", "ipv6_route")
"""Files of /proc/net: the IPv4 routes, of which some are local, the IPv6 addresses, and the IPv6 routes."""
_LOCAL_6 = 0x80000000 | 0x00100000
"""The flags RTF_LOCAL and RTF_ANYCAST (linux/ipv6_route.h)."""

APART = "apart"
"""What a gateway reports, when it is ready, if the files belong to another network than the one around it."""


HELD = "held"
"""What a gateway reports if somebody has the first address of its network. It is the bridge's, and should be free."""

_ASKED_S, _AGAIN_S = 1.0, 30.0
_COMPLETE = 2
"""The flag ATF_COM of an entry in /proc/net/arp (linux/if_arp.h): the machine at the address answered."""
_SAID_MOST = 64
_NONE_LEFT = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))


def ready_words(records: Path) -> tuple[str, ...]:
    """The words that a gateway reported when it was ready.

    It may put anything into its folder, so links, pipes and long files are not read.
    """
    try:
        fd = os.open(records / "ready", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ()
    try:
        return tuple(os.pread(fd, _SAID_MOST, 0).decode("ascii", "replace").split())
    except OSError:  # a pipe, a folder
        return ()
    finally:
        os.close(fd)


class Host:
    """Knows which addresses lead to the machine itself. Without a folder it knows none of them.

    ``routes`` is the gateway's own routing table: the next hop is the machine's end of the bridge, or a router.
    """

    def __init__(self, folder: Path | None, routes: Path = Path("/proc/net/route")) -> None:
        self._folder, self._routes = folder, routes
        self._networks: frozenset[Network] = frozenset()
        self._read_at = float("-inf")

    def has(self, address: Address, *, fresh: bool = False) -> bool:
        """Whether an address is the machine's own: as of the last second or, with ``fresh``, as of now (in 0.1 ms).

        If the files are gone, the addresses that were known stay known. If they cannot be read, because the gateway has
        no descriptor left, any address may be the machine's.
        """
        if self._folder is None:
            return False
        try:
            self._refresh(self._folder, fresh)
        except OSError:
            return True
        return any(plain(address) in network for network in self._networks)

    def _refresh(self, folder: Path, fresh: bool) -> None:
        if fresh or time.monotonic() - self._read_at > _LIVE_S:
            self._networks = (_read(folder) or self._networks) | self._routers()
            self._read_at = time.monotonic()

    @property
    def apart(self) -> bool:
        """Whether the files belong to another network than the gateway's: they contain none of its next hops."""
        if self._folder is None:
            return True
        machine, routers = _read(self._folder), self._routers()
        return not any(router.subnet_of(network) for router in routers for network in machine if network.version == 4)

    def _routers(self) -> frozenset[ipaddress.IPv4Network]:
        try:
            return routers_4(self._routes.read_text())
        except (OSError, ValueError) as error:
            if getattr(error, "errno", 0) in _NONE_LEFT:
                raise
            return frozenset()


async def watch(network: ipaddress.IPv4Network, tell: Callable[[bool], None]) -> None:
    """Report, now and every 30 s, whether the first address of a network answers for itself."""
    address = str(network[1])
    while True:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", (address, 9))  # discard (RFC 863): it makes the kernel look for the address's owner
        await asyncio.sleep(_ASKED_S)
        with suppress(OSError):
            tell(answers_4(Path("/proc/net/arp").read_text(), address))
        await asyncio.sleep(_AGAIN_S)


def answers_4(text: str, address: str) -> bool:
    """Whether the text of ``/proc/net/arp`` has a hardware address for an address."""
    words = [line.split() for line in text.splitlines()[1:]]
    return any(one[0] == address and int(one[2], 16) & _COMPLETE for one in words if len(one) > 2)


def _read(folder: Path) -> frozenset[Network]:
    found: set[Network] = set()
    for name, parse in zip(FILES, (local_4, local_6, routed_6), strict=True):
        try:
            found |= parse((folder / name).read_text())
        except (OSError, ValueError) as error:
            if getattr(error, "errno", 0) in _NONE_LEFT:
                raise
            continue  # a machine without IPv6 has no such file
    return frozenset(found)


def local_4(text: str) -> set[Network]:
    """The local networks in the text of ``fib_trie``. Most are single addresses."""
    found: set[Network] = set()
    address = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif "LOCAL" in words[1:]:
            found.add(ipaddress.IPv4Network(f"{address}{words[0]}", strict=False))
    return found


def routers_4(text: str) -> frozenset[ipaddress.IPv4Network]:
    """The next hops in the text of ``/proc/net/route``, whose addresses are in the machine's byte order."""
    words = [line.split() for line in text.splitlines()[1:]]
    found = (socket.inet_ntoa(struct.pack("=I", int(one[2], 16))) for one in words if len(one) > 2)
    return frozenset(ipaddress.IPv4Network(one) for one in found if one != "0.0.0.0")  # noqa: S104 - none


def local_6(text: str) -> set[Network]:
    """The addresses in the text of ``if_inet6``."""
    return {ipaddress.IPv6Network(int(line.split()[0], 16)) for line in text.splitlines() if line.strip()}


def routed_6(text: str) -> set[Network]:
    """The networks in the text of ``ipv6_route`` that the machine takes for its own, by a route alone."""
    rows = [line.split() for line in text.splitlines()]
    return {
        ipaddress.IPv6Network((int(row[0], 16), int(row[1], 16)), strict=False)
        for row in rows
        if int(row[8], 16) & _LOCAL_6
    }
