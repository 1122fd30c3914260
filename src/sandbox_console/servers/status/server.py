"""Serves the status of a fleet to callers with a token of the scope ``status``, on an address of its own."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from sandbox_console import service
from sandbox_console.errors import ConfigError
from sandbox_console.model.access import access, full, limited_to
from sandbox_console.servers.status import page
from sandbox_console.servers.status.metrics import exposition
from sandbox_console.service.bootstrap import known_ground
from sandbox_console.service.fleet_status import FleetStatus, StatusWatch, seen_by
from sandbox_console.service.people.rights import of_token
from sandbox_console.service.tokens import Tokens
from sandbox_console.web.connections import Connections
from sandbox_console.web.listen_sockets import listening
from sandbox_console.web.options import ServeOptions, is_loopback
from sandbox_console.web.request_checks import Checks, add_headers
from sandbox_console.web.run import accepting, server_tls

CONNECTIONS = 32
REFUSAL_S = 1.0
"""Seconds that a caller without a token waits for the answer."""

Sessions = Callable[[], int] | None


@asynccontextmanager
async def status(
    options: ServeOptions, port: int, console: service.Console, tokens: Tokens, say: Callable[[str], None],
    sessions: Sessions = None,
) -> AsyncIterator[None]:  # fmt: skip
    """Serve while inside. ``sessions`` counts those of the page. Raises ConfigError, Conflict if the port is taken."""
    await asyncio.to_thread(tokens.every)  # an unusable file is reported now
    tls = server_tls(options, known_ground(options.config))
    async with StatusWatch(console) as watch:
        with listening(options, port) as held:
            checks = Checks(options.scheme, held.authorities, pages=("/status",))
            app = _application(_Answers(watch, sessions), checks, tokens)
            async with accepting(app, held, tls, Connections(CONNECTIONS)):
                if not is_loopback(options.host) and options.scheme == "http":
                    say("warning: no TLS: anyone on the network can read the tokens and all that is sent")
                say(f"status: {options.scheme}://{held.authorities[0]}/status")
                yield


def _application(answers: _Answers, checks: Checks, tokens: Tokens) -> web.Application:
    app = web.Application(middlewares=[checks.middleware, _door(tokens)], client_max_size=1024)
    app.on_response_prepare.append(add_headers)
    app.add_routes(
        [
            web.get("/status", answers.page),
            web.get("/status.json", answers.json),
            web.get("/metrics", answers.metrics),
        ]
    )
    return app


class _Answers:
    def __init__(self, watch: StatusWatch, sessions: Sessions) -> None:
        self._watch, self._sessions = watch, sessions

    async def page(self, _: web.Request) -> web.Response:
        return web.Response(text=page.page(await self._read(), self._count()), content_type="text/html")

    async def json(self, _: web.Request) -> web.Response:
        return web.json_response(page.as_json(await self._read(), self._count()))

    async def metrics(self, _: web.Request) -> web.Response:
        body = exposition(await self._read(), self._count())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _read(self) -> FleetStatus:
        with limited_to(full):  # what is counted is kept for all callers
            status = await self._watch.read()
        return seen_by(status, access())

    def _count(self) -> int | None:
        return None if self._sessions is None or access().labels else self._sessions()


def _door(tokens: Tokens) -> Middleware:
    @web.middleware
    async def enter(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let callers with a token in: as a bearer, or as the password that a browser asks for."""
        try:
            known = await asyncio.to_thread(tokens.find, _given(request), "status")
        except ConfigError:
            raise web.HTTPServiceUnavailable(text="Tokens cannot be looked up.\n") from None
        if known is None:
            await asyncio.sleep(REFUSAL_S)
            raise web.HTTPUnauthorized(
                text="A token with the scope status is needed: sandbox-console tokens add NAME --scope status\n",
                headers={"WWW-Authenticate": 'Basic realm="sandbox-console: the password is the token"'},
            )
        with limited_to(of_token(tokens, known)):
            return await handler(request)

    return enter


def _given(request: web.Request) -> str:
    headers = request.headers.getall("Authorization", [])
    kind, _, text = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    if kind.lower() == "bearer":
        return text.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
