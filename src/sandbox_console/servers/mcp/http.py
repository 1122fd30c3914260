"""MCP over streamable HTTP, on its own listener. Each request has a token; there are no sessions."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox_console import service
from sandbox_console.errors import NotFound
from sandbox_console.model.access import NONE, AccessSource
from sandbox_console.servers.mcp.server import make
from sandbox_console.servers.refusal_delay import RefusalDelay
from sandbox_console.service.bootstrap import known_ground
from sandbox_console.service.people.rights import of_token, person
from sandbox_console.service.tokens import Tokens
from sandbox_console.web.connections import HEADER_S
from sandbox_console.web.listen_sockets import listening
from sandbox_console.web.options import ServeOptions, is_loopback
from sandbox_console.web.run import server_tls

PATH = "/mcp"
BODY_BYTES = 2 << 20
BODY_S = 15.0
CONNECTIONS = 256
CALLS = 8
"""How many requests of one token run at a time."""

_HEADER_BYTES = 16 * 1024
_CALLER = "sandbox_console.caller"


class Guard:
    """An ASGI guard that checks host, origin, token and body. A client that goes away ends its request."""

    def __init__(self, app: ASGIApp, tokens: Tokens, scheme: str, authorities: Collection[str]) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = frozenset(authorities)
        self._origins = frozenset(f"{scheme}://{one}" for one in authorities)
        self._pacing = RefusalDelay()
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return None
        if refused := self._refused(scope):
            return await _answer(send, *refused)
        if scope["method"] != "POST":  # a stream of events would occupy one of the caller's requests for nothing
            return await _answer(send, 405, "only POST: there are no sessions and no events", (b"allow", b"POST"))
        token = await asyncio.to_thread(self._tokens.find, _bearer(scope), "mcp")
        if token is None:
            await self._pacing.refused(str((scope.get("client") or ("",))[0]))
            return await _answer(send, 401, "a token with the scope mcp is needed", (b"www-authenticate", b"Bearer"))
        try:
            name = person(self._tokens, token) or token.name
        except NotFound:
            return await _answer(send, 401, "the user of this token was removed", (b"www-authenticate", b"Bearer"))
        caller = f"mcp:{name}", of_token(self._tokens, token)
        if self._running[token.name] >= CALLS:
            await self._pacing.refused(f"token {token.name}")
            return await _answer(send, 429, "too many of your requests are running", (b"retry-after", b"1"))
        self._running[token.name] += 1
        try:
            body = await _body(receive)
            if body is None:
                return await _answer(send, 413, "the body is too large, or came too slowly")
            await _until_gone(self._app, {**scope, _CALLER: caller}, body, receive, send)
        finally:
            self._running[token.name] -= 1
            if not self._running[token.name]:
                del self._running[token.name]

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        hosts, origins = _headers(scope, b"host"), _headers(scope, b"origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, "this server does not answer to that host name"
        if not self._origins.issuperset(origins):
            return 403, "a page of another origin may not call this"
        return (404, f"MCP is at {PATH}") if scope["path"] != PATH else None


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _bearer(scope: Scope) -> str:
    given = _headers(scope, b"authorization")
    kind, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return text.strip() if kind.lower() == "bearer" else ""


async def _body(receive: Receive) -> bytes | None:
    """Read the whole body; None if it is too large, too slow or never ends."""
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                found += message.get("body", b"")
                if message["type"] != "http.request" or len(found) > BODY_BYTES:
                    return None
                if not message.get("more_body"):
                    return bytes(found)
    except TimeoutError:
        return None


async def _until_gone(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the application. If its client goes away, cancel it and with it the command that it runs."""
    messages: deque[Message] = deque([{"type": "http.request", "body": body, "more_body": False}])
    gone = asyncio.Event()

    async def replay() -> Message:
        if messages:
            return messages.popleft()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    running, watching = asyncio.ensure_future(app(scope, replay, send)), asyncio.ensure_future(watch())
    try:
        await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in (running, watching):
            one.cancel()
        await asyncio.gather(running, watching, return_exceptions=True)


async def _answer(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = text.encode() + b"\n"
    given = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": body})


class _Bounded(H11Protocol):
    """uvicorn's protocol with a timeout for a request's header, as uvicorn only has one between requests."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._mind()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _mind(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._late is None:
            self._late = asyncio.get_running_loop().call_later(HEADER_S, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the caller."""
        yield


@asynccontextmanager
async def mcp(
    options: ServeOptions, port: int, console: service.Console, tokens: Tokens, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Serve while inside. Raises ConfigError, Conflict if the port is taken."""
    tls = server_tls(options, known_ground(options.config))
    await asyncio.to_thread(tokens.every)  # an unusable file is reported now
    with listening(options, port) as held:
        authorities = held.authorities
        server = make(console, _actor, _rights)
        app = server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True)
        guard = Guard(app, tokens, options.scheme, authorities)
        config = uvicorn.Config(
            guard, http=_Bounded, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            timeout_keep_alive=int(HEADER_S), limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=_HEADER_BYTES,
        )  # fmt: skip
        config.load()
        config.ssl = tls
        async with server.session_manager.run():
            listener = _Server(config)
            serving = asyncio.ensure_future(listener.serve(sockets=held.sockets))
            try:
                if not is_loopback(options.host) and options.scheme == "http":
                    say("warning: no TLS: anyone on the network can read the tokens and all that is sent")
                say(f"mcp: {options.scheme}://{authorities[0]}{PATH}")
                yield
            finally:
                listener.should_exit = True
                await serving


def _actor(context: Any) -> str:
    request = context.request
    return str(request.scope[_CALLER][0]) if request is not None else "mcp:unknown"


def _rights(context: Any) -> AccessSource:
    request = context.request
    found: AccessSource = request.scope[_CALLER][1] if request is not None else lambda: NONE
    return found
