"""Connects to an allowed name: it is resolved once, checked, and pinned to the address that was checked.

The address is checked again once it is connected: if this machine gets the address while the connection waits for an
answer, this machine answers it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping, Sequence

from sandbox_console.egress.addresses import Address
from sandbox_console.egress.connection import Connection, Refused
from sandbox_console.egress.decide import address_verdict
from sandbox_console.egress.resolve import Own, Resolve
from sandbox_console.egress.stream import tune
from sandbox_console.model.egress import EgressRule

CONNECT_S = 10.0


async def dial(
    flow: Connection, rules: Sequence[EgressRule], hosts: Mapping[str, Sequence[str]], resolver: Resolve, own: Own
) -> socket.socket:
    """Connect to the first allowed address that answers, and set it in the flow. Raises Refused."""
    try:
        found = await resolver(flow.host, hosts)
    except (OSError, ValueError):
        raise Refused("unresolvable", rule=flow.rule) from None
    server = await _first(flow, _good(flow, rules, found, own))
    try:
        _good(flow, rules, [flow.address] if flow.address else [], own, fresh=True)
    except Refused:
        server.close()  # nothing was sent to it
        raise
    return server


def _good(
    flow: Connection, rules: Sequence[EgressRule], found: Sequence[Address], own: Own, *, fresh: bool = False
) -> list[Address]:
    refused = Refused("unresolvable", rule=flow.rule)
    good = []
    for address in found:
        decision = address_verdict(rules, address, flow.port, own=own(address, flow.port, fresh))
        if decision.allowed:
            good.append(address)
        else:
            refused = Refused(decision.reason, rule=decision.rule, detail=decision.hint, address=str(address))
    if not good:
        raise refused
    return good


async def _first(flow: Connection, addresses: Sequence[Address]) -> socket.socket:
    until = time.monotonic() + CONNECT_S
    failure: OSError = TimeoutError()
    for number, address in enumerate(addresses):
        flow.address = address
        left = until - time.monotonic()
        try:
            return await _connected(address, flow.port, max(1.0, left / (len(addresses) - number)))
        except OSError as error:
            failure = error
    why = "timeout" if isinstance(failure, TimeoutError) else "unreachable"
    raise Refused(
        why, rule=flow.rule, detail=os.strerror(failure.errno) if failure.errno else "", address=str(flow.address)
    )


async def _connected(address: Address, port: int, seconds: float) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        tune(sock)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock
