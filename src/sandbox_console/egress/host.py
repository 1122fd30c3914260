"""The addresses of the machine around a gateway that has a network of its own: read from the kernel's files, live."""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path

from sandbox_console.egress.addresses import Address, plain
from sandbox_console.model.hosts import Network

_LIVE_S = 1.0
FILES = ("fib_trie", "if_inet6")
"""Of /proc/net: the routes, whose entries ``LOCAL`` are the addresses of IPv4, and the addresses of IPv6."""


class Host:
    """Knows which addresses lead to the machine itself. Without a folder none is known from there."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._networks: frozenset[Network] = frozenset()
        self._read_at = float("-inf")

    def has(self, address: Address) -> bool:
        """Whether it is the machine's own now. What was known stays where the files cannot be read."""
        if self._folder is None:
            return False
        if time.monotonic() - self._read_at > _LIVE_S:
            self._read_at = time.monotonic()
            self._networks = _read(self._folder) or self._networks
        return any(plain(address) in network for network in self._networks)


def _read(folder: Path) -> frozenset[Network]:
    found: set[Network] = set()
    for name, parse in zip(FILES, (local_4, local_6), strict=True):
        try:
            found |= parse((folder / name).read_text())
        except (OSError, ValueError):
            continue  # a machine without IPv6 has no such file
    return frozenset(found)


def local_4(text: str) -> set[Network]:
    """The local networks in a ``fib_trie``; most are of one address."""
    found: set[Network] = set()
    address = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words[1:] == ["host", "LOCAL"]:
            found.add(ipaddress.IPv4Network(f"{address}{words[0]}", strict=False))
    return found


def local_6(text: str) -> set[Network]:
    """The addresses in an ``if_inet6``."""
    return {ipaddress.IPv6Network(int(line.split()[0], 16)) for line in text.splitlines() if line.strip()}
