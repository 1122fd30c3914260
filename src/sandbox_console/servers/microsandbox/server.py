"""The JSON-RPC as an aiohttp application, its door, and its listener on its own address."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct

from sandbox_console import service
from sandbox_console.errors import ConsoleError, NotFound
from sandbox_console.model.access import AccessSource, limited_to
from sandbox_console.model.actor import acting_as
from sandbox_console.model.trace import traced
from sandbox_console.servers.microsandbox import protocol
from sandbox_console.servers.microsandbox.calls import Calls
from sandbox_console.servers.microsandbox.interpreters import Interpreters
from sandbox_console.servers.microsandbox.protocol import Call
from sandbox_console.servers.microsandbox.sandboxes import Sandboxes
from sandbox_console.servers.refusal_delay import RefusalDelay
from sandbox_console.service.bootstrap import known_ground
from sandbox_console.service.people.rights import of_token, person
from sandbox_console.service.tokens import Token, Tokens
from sandbox_console.web.connections import Connections
from sandbox_console.web.listen_sockets import listening
from sandbox_console.web.options import ServeOptions, is_loopback
from sandbox_console.web.request_checks import refuse_pages
from sandbox_console.web.run import accepting, server_tls

PATH, HEALTH = "/api/v1/rpc", "/api/v1/health"
MOST_BYTES = 4 << 20
BODY_S = 15.0
CONNECTIONS = 512
_TOKEN = web.RequestKey("token", str)


class Door:
    """Middleware that identifies callers, limits their running calls, and answers errors in the old server's form."""

    def __init__(self, tokens: Tokens, authorities: Collection[str], max_calls: int) -> None:
        self._tokens, self._authorities, self._max_calls = tokens, frozenset(authorities), max_calls
        self._pacing = RefusalDelay()
        self._running: Counter[str] = Counter()

    @web.middleware
    async def errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer every error. Of an unexpected one, report only that it happened."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            return protocol.refused(error.status, protocol.INVALID_INPUT, error.text or error.reason)
        except ConsoleError as error:
            return protocol.of_error(error)
        except Exception as error:  # noqa: BLE001 - no detail of a bug is a caller's business
            return protocol.refused(500, protocol.INTERNAL, f"unexpected {type(error).__name__}")

    @web.middleware
    async def enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Accept only known hosts, no browser pages, and callers with a token, each with a few calls at a time."""
        refuse_pages(request, self._authorities)
        if request.path == HEALTH:
            return await handler(request)
        shown = _shown(request)
        token = await asyncio.to_thread(self._tokens.find, shown, "microsandbox")
        rights = self._rights(token) if token is not None else None
        if token is None or rights is None:
            await self._pacing.refused(request.remote or "")
            code = protocol.INVALID_TOKEN if shown else protocol.INVALID_CREDENTIALS
            text = "Invalid or expired token: one with the scope microsandbox is needed"
            return protocol.refused(401, code, text, {"WWW-Authenticate": "Bearer"})
        if self._running[token.name] >= self._max_calls:
            await self._pacing.refused(f"token {token.name}")
            return protocol.refused(429, protocol.ACCESS_DENIED, f"{self._max_calls} of your calls are running")
        request[_TOKEN] = token.name
        self._running[token.name] += 1
        try:
            with acting_as(rights.actor), limited_to(rights.source), traced(_only(request, "traceparent")):
                return await handler(request)
        finally:
            self._running[token.name] -= 1

    def _rights(self, token: Token) -> _Rights | None:
        """Who acts, and what this person may do; None if the token's user was removed."""
        try:
            name = person(self._tokens, token)
            return _Rights(f"microsandbox:{name}" if name else f"token:{token.name}", of_token(self._tokens, token))
        except NotFound:
            return None


class _Rights(Struct, frozen=True):
    actor: str
    source: AccessSource


def _only(request: web.Request, name: str) -> str:
    found = request.headers.getall(name, [])
    return found[0] if len(found) == 1 else ""


def _shown(request: web.Request) -> str:
    """The token that a caller shows, in either of the headers that old clients use."""
    kind, _, text = (_only(request, "Authorization") or _only(request, "Proxy-Authorization")).partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""


def application(tokens: Tokens, authorities: Collection[str], calls: Calls, max_calls: int) -> web.Application:
    """The application."""
    door = Door(tokens, authorities, max_calls)
    app = web.Application(middlewares=[door.errors, door.enter], client_max_size=MOST_BYTES)

    async def rpc(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(BODY_S):
                data = await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body came too slowly") from None
        try:
            call = msgspec.json.decode(data, type=Call)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return protocol.fault(protocol.PARSE_ERROR, f"the request cannot be read: {error}"[:300], None, 400)
        if call.jsonrpc != "2.0":
            text = "Invalid or missing jsonrpc version field"
            return protocol.fault(protocol.INVALID_REQUEST, text, call.id, 400)
        method = calls.methods.get(call.method)
        if method is None:
            return protocol.fault(protocol.METHOD_NOT_FOUND, f"Method not found: {call.method[:64]}", call.id, 404)
        return protocol.result(await method(request[_TOKEN], call.params), call.id)

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"message": "Service is healthy"})

    app.add_routes([web.post(PATH, rpc), web.get(HEALTH, health)])
    return app


@asynccontextmanager
async def served(
    console: service.Console, tokens: Tokens, authorities: Collection[str]
) -> AsyncIterator[web.Application]:
    """The application for a console, for as long as the block lasts. Raises ConfigError for an unusable file."""
    await asyncio.to_thread(tokens.every)
    options, interpreters = console.config.microsandbox, Interpreters()
    try:
        calls = Calls(Sandboxes(console), interpreters, options.max_timeout_s)
        yield application(tokens, authorities, calls, options.max_calls)
    finally:
        await interpreters.close()


@asynccontextmanager
async def microsandbox(
    options: ServeOptions, port: int, console: service.Console, tokens: Tokens, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Serve while inside. Raises ConfigError, Conflict if the port is taken."""
    tls = server_tls(options, known_ground(options.config))
    with listening(options, port) as held:
        async with (
            served(console, tokens, held.authorities) as app,
            accepting(app, held, tls, Connections(CONNECTIONS, keeps_own=True), cancels=True),
        ):
            if not is_loopback(options.host) and options.scheme == "http":
                say("warning: no TLS: anyone on the network can read the tokens and all that is sent")
            say(f"microsandbox: {options.scheme}://{held.authorities[0]}")
            yield
