"""Resolves names: fixed addresses first, then the system's resolver."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence

from sandbox_console.egress.addresses import Address
from sandbox_console.model.hosts import parse_address

RESOLVE_S = 10.0
_MOST = 8

Own = Callable[[Address, int, bool], bool]
"""Whether an address with a port is this machine's own. The flag requests a check that is not from a cache."""
Resolve = Callable[[str, Mapping[str, Sequence[str]]], Awaitable[list[Address]]]


async def resolve(name: str, hosts: Mapping[str, Sequence[str]]) -> list[Address]:
    """The first few addresses of a name or literal, without duplicates. Raises OSError if there is none."""
    if (literal := parse_address(name)) is not None:
        return [literal]
    if name in hosts:
        return [ipaddress.ip_address(one) for one in hosts[name]]
    async with asyncio.timeout(RESOLVE_S):
        rows = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    unique = dict.fromkeys(str(row[4][0]).partition("%")[0] for row in rows)
    return [ipaddress.ip_address(one) for one in list(unique)[:_MOST]]
