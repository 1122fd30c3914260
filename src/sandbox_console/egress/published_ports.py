"""Relays connections from outside to the published ports of a sandbox, and none the other way."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sandbox_console.egress.addresses import Address
from sandbox_console.egress.listener import Listener
from sandbox_console.egress.relay import Budget, Relay
from sandbox_console.egress.stream import reset, tune
from sandbox_console.model.hosts import Network

MOST = 2048
"""The most connections at once over all ports of a sandbox. Each takes two descriptors; the rest is for egress."""
CONNECT_S = 5.0
HALF_OPEN_S = 600.0
"""How long one side may be silent after the other has ended. Its client may be gone, which TCP does not report."""


class Publisher:
    """Relays each connection to a port of this gateway to that port's address in ``targets``.

    Connections from the network ``inside``, which is the sandbox's, and from a neighbour are refused; at the ports in
    ``loopback`` only the host's are accepted. An engine that publishes at its host's loopback address leaves the
    container's own address open to every container beside it and, up to Docker 27, to other machines that route to it.
    ``used`` is a file whose modification time is when a byte last passed.
    """

    def __init__(
        self,
        targets: Mapping[int, tuple[str, int]],
        inside: Network | None = None,
        loopback: Collection[int] = (),
        most: int = MOST,
        used: Path | None = None,
    ) -> None:
        self._targets, self._inside, self._loopback = targets, inside, loopback
        self._routers, self._near = routers_and_networks()
        self._door = Listener(self._client, most, self._admits)
        self._budget = Budget(used=used)

    async def serve(self, listeners: Sequence[socket.socket]) -> None:
        """Serve until cancelled; then every connection is cut."""
        await self._door.keep(listeners)

    def _admits(self, sock: socket.socket, peer: Address) -> bool:
        if self._inside is not None and peer in self._inside:
            return False
        if peer in self._routers:
            return True
        return sock.getsockname()[1] not in self._loopback and not any(peer in network for network in self._near)

    async def _client(self, client: socket.socket) -> None:
        """Serve one connection. It is reset if the sandbox does not listen or too many are open."""
        with client:
            try:
                if self._door.full:
                    return reset(client)
                await self._relayed(client)
            except OSError:
                reset(client)
            except asyncio.CancelledError:
                reset(client)
                raise

    async def _relayed(self, client: socket.socket) -> None:
        with socket.socket() as server:
            try:
                tune(client)
                tune(server)
                async with asyncio.timeout(CONNECT_S):
                    await asyncio.get_running_loop().sock_connect(server, self._targets[client.getsockname()[1]])
                await _relay(Relay(client, server, self._budget))
            except BaseException:
                reset(server)
                raise


def routers_and_networks(table: Path = Path("/proc/net/route")) -> tuple[set[Address], list[Network]]:
    """The addresses of the routers and the networks of this machine, from its routing table.

    The host of a bridge connects from a router's address.
    """
    routers: set[Address] = set()
    near: list[Network] = []
    for line in table.read_text().splitlines()[1:]:
        _, to, via, _, _, _, _, mask, *_ = line.split()
        if int(via, 16):
            routers.add(_read(via))
        elif int(to, 16):
            near.append(ipaddress.IPv4Network(f"{_read(to)}/{_read(mask)}"))
    return routers, near


def _read(word: str) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int(word, 16).to_bytes(4, sys.byteorder))


async def _relay(relay: Relay) -> None:
    """Relay until the end. Raises OSError if a side breaks off, or stays silent for long after the other has ended."""
    running = asyncio.ensure_future(relay.run())
    try:
        while not (await asyncio.wait({running}, timeout=HALF_OPEN_S))[0]:
            if relay.half and not relay.active:
                break
            relay.active = False
    finally:
        running.cancel()
        await asyncio.wait({running})
    if not (relay.up.ended and relay.down.ended):
        raise ConnectionResetError
