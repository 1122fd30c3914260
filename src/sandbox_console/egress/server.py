"""The gateway: accepts connections, decides about them, and relays what is allowed."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

from sandbox_console.egress import http_answers, tunnel
from sandbox_console.egress.addresses import Address
from sandbox_console.egress.connection import Connection, ConnectionRecords, Refused
from sandbox_console.egress.decide import address_verdict, verdict
from sandbox_console.egress.host_addresses import Host
from sandbox_console.egress.http_forward import HALF_OPEN_S, forward
from sandbox_console.egress.listener import Listener
from sandbox_console.egress.local_route import stays_here
from sandbox_console.egress.records import Recorder
from sandbox_console.egress.relay import Budget
from sandbox_console.egress.request import HEAD_MOST, BadRequest, Request, parse
from sandbox_console.egress.resolve import Resolve, resolve
from sandbox_console.egress.rule_files import in_force, next_expiry
from sandbox_console.egress.rules import Rules
from sandbox_console.egress.stream import Stream, TooLong, reset, tune
from sandbox_console.egress.upstream import dial
from sandbox_console.model.hosts import Network

HEAD_S = 20.0
LOOK_S = 0.25
"""How often the rules are checked for changes while a connection is open. Every new connection also checks them."""
MOST = 4096


class Gateway:
    """Serves one sandbox. ``folder`` has its policy, ``recorder`` writes its records; ``most`` limits open connections.

    Connections from outside the network ``peers`` are closed, as a machine accepts packets for any of its addresses on
    each of its interfaces. ``host`` knows the addresses of the machine around it.
    """

    def __init__(
        self,
        folder: Path,
        recorder: Recorder,
        *,
        most: int = MOST,
        peers: Network | None = None,
        resolver: Resolve = resolve,
        host: Host | None = None,
    ) -> None:
        self._rules = Rules(folder)
        self._books = ConnectionRecords(recorder.write)
        self._peers, self._resolver = peers, resolver
        self._host = host or Host(None)
        self._budget = Budget()
        self._door = Listener(self._client, most, self._admits)
        self._flows: set[Connection] = set()
        self._watch: asyncio.Task[None] | None = None

    async def serve(self, listener: socket.socket) -> None:
        """Serve until cancelled; then every connection is cut."""
        try:
            await self._door.keep([listener])
        finally:
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.gather(self._watch, return_exceptions=True)

    def _admits(self, _sock: socket.socket, peer: Address) -> bool:
        return self._peers is None or peer in self._peers

    async def _client(self, sock: socket.socket) -> None:
        try:
            tune(sock)
            await self._serve(Stream(sock))
        except (OSError, EOFError):
            return  # the client went away
        except asyncio.CancelledError:
            reset(sock)
            raise
        finally:
            sock.close()

    async def _serve(self, client: Stream) -> None:
        request: Request | None = None
        try:
            request = await self._request(client)
            if request.query is not None:
                _, rules = self._rules.current()
                await client.send(http_answers.verdict_answer(verdict(rules, request.host, request.port)))
            else:
                await self._pass(request, client)
        except BadRequest as error:
            host, port = (request.host, request.port) if request else (error.host, error.port)
            refused = Refused(error.reason, detail=str(error))
            await self._refuse(client, host, port, request.method if request else "", refused)
        except Refused as refused:
            host, port, method = (request.host, request.port, request.method) if request else ("", 0, "")
            await self._refuse(client, host, port, method, refused)

    async def _request(self, client: Stream) -> Request:
        if self._door.full:
            raise Refused("too_many")
        try:
            async with asyncio.timeout(HEAD_S):
                return parse(await client.until(b"\r\n\r\n", HEAD_MOST))
        except TooLong:
            raise BadRequest("the request's head is too long") from None
        except TimeoutError:
            raise Refused("timeout") from None

    async def _refuse(self, client: Stream, host: str, port: int, method: str, refused: Refused) -> None:
        self._rules.look()
        self._books.sandbox = sandbox = self._rules.policy.sandbox if self._rules.policy else ""
        self._books.refused(host, port, method, refused)
        if refused.reason in {"sni_mismatch", "no_sni"}:
            await client.send(http_answers.UNRECOGNIZED_NAME)
        else:
            await client.send(http_answers.refusal(sandbox, host, port, refused.reason, refused.detail))
        if refused.reason != "too_many":
            await _linger(client)

    async def _pass(self, request: Request, client: Stream) -> None:
        policy, rules = self._rules.current()
        decision = verdict(rules, request.host, request.port)
        if not decision.allowed:
            raise Refused(decision.reason, rule=decision.rule, detail=decision.hint)
        self._books.sandbox = policy.sandbox
        task = cast("asyncio.Task[None]", asyncio.current_task())
        flow = Connection(request.host, request.port, request.method, decision.rule, task)
        self._open(flow)
        server: socket.socket | None = None
        try:
            server = await dial(flow, rules, policy.hosts, self._resolver, self._own)
            await (self._tunnel if request.method == "CONNECT" else self._forward)(request, client, server, flow)
        except Refused as refused:
            flow.reason = refused.reason
            raise
        except asyncio.CancelledError:
            if server is not None:
                reset(server)
            raise
        finally:
            if server is not None:
                server.close()
            self._flows.discard(flow)
            self._books.ended(flow)

    async def _forward(self, request: Request, client: Stream, server: socket.socket, flow: Connection) -> None:
        self._books.allowed(flow)
        await forward(request, client, Stream(server), flow)

    async def _tunnel(self, _request: Request, client: Stream, server: socket.socket, flow: Connection) -> None:
        await client.send(http_answers.CONNECTED)
        await tunnel.handshake(client, flow)
        self._books.allowed(flow)
        await tunnel.relay(client, server, flow, self._budget)

    def _own(self, address: Address, _port: int, fresh: bool = False) -> bool:
        return self._host.has(address, fresh=fresh) or stays_here(address)

    # -- cutting connections that are no longer allowed

    def _open(self, flow: Connection) -> None:
        self._flows.add(flow)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        """Cut what is no longer allowed, for as long as anything is open. An idle gateway never wakes up."""
        seen, expiry = -1, 0.0
        while self._flows:
            await asyncio.sleep(LOOK_S)
            generation, now = self._rules.look(), time.time()
            if generation != seen or expiry <= now:
                seen, expiry = generation, self._cut_disallowed(now)
            self._cut_quiet()
        self._watch = None

    def _cut_disallowed(self, now: float) -> float:
        """Return when to check again at the latest, which is when the next rule expires."""
        rules = in_force(self._rules.policy.rules, now) if self._rules.policy else ()
        for flow in list(self._flows):
            decision = verdict(rules, flow.host, flow.port)
            if decision.allowed and flow.address is not None:
                own = self._own(flow.address, flow.port)
                decision = address_verdict(rules, flow.address, flow.port, own=own)
            if not decision.allowed:
                flow.cut("revoked")
        return next_expiry(rules, now) or float("inf")

    def _cut_quiet(self) -> None:
        """Cut tunnels that have ended on one side and are silent on the other."""
        now = time.monotonic()
        for flow in list(self._flows):
            if flow.relay is None or not flow.relay.half:
                continue
            if flow.relay.active:
                flow.relay.active, flow.quiet_since = False, now
            elif now - flow.quiet_since > HALF_OPEN_S:
                flow.cut("timeout")


async def _linger(client: Stream) -> None:
    """Let the client read the answer: closing with unread input would reset the connection under it."""
    with suppress(OSError, EOFError):
        client.sock.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(2.0):
            while True:
                client.rest = b""
                await client.more()
