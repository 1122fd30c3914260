"""Serves a CONNECT tunnel: TLS to the requested host, and nothing else."""

from __future__ import annotations

import asyncio
import socket

from sandbox_console.egress import client_hello, hello_retry
from sandbox_console.egress.connection import Connection, Refused
from sandbox_console.egress.decide import named
from sandbox_console.egress.relay import Budget, Relay
from sandbox_console.egress.stream import Stream
from sandbox_console.model.hosts import parse_address

HANDSHAKE_S = 20.0
_READS = 200  # no client sends a ClientHello in more pieces; each is parsed from the start again


async def handshake(client: Stream, flow: Connection) -> None:
    """Read the ClientHello and leave it in the stream. Raises Refused if it is not for the flow's host."""
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            name = await _server_name(client)
    except TimeoutError:
        raise _refused("raw", flow, "no TLS handshake came") from None
    except client_hello.NotTLS as error:
        raise _refused("raw", flow, str(error)) from None
    _check(flow, name)


def _check(flow: Connection, name: str) -> None:
    if not name and parse_address(flow.host) is None:
        raise _refused("no_sni", flow)
    if name and named(name) != flow.host:  # clients do not name an address in their handshake (RFC 6066)
        raise _refused("sni_mismatch", flow, f"the handshake names {name[:253]}")


async def _server_name(client: Stream) -> str:
    for _ in range(_READS):
        name = client_hello.server_name(client.rest)
        if name is not None:
            return name
        try:
            await client.more()
        except EOFError:
            if client.rest:
                raise client_hello.NotTLS("it ended in its handshake") from None
            raise
    raise client_hello.NotTLS("the ClientHello comes in too many pieces")


async def relay(client: Stream, server: socket.socket, flow: Connection, budget: Budget) -> None:
    """Pass bytes both ways until both sides have ended, beginning with the ClientHello in the stream.

    Raises Refused if a second ClientHello, which a server may request, names another host than the first.
    """
    first = client.take(client_hello.size(client.rest))
    flow.sent += len(first)
    await asyncio.get_running_loop().sock_sendall(server, first)
    ahead = client.take(len(client.rest))  # a client need not wait for the server's answer
    try:
        sent, received = await hello_retry.watch(client.sock, server, lambda name: _check(flow, name), ahead)
    except client_hello.NotTLS as error:
        raise _refused("raw", flow, str(error)) from None
    flow.sent += sent
    flow.received += received
    flow.relay = Relay(client.sock, server, budget)
    await flow.relay.run()


def _refused(reason: str, flow: Connection, detail: str = "") -> Refused:
    return Refused(reason, rule=flow.rule, detail=detail, address=str(flow.address))
