"""The API as an aiohttp application, and its listener on its own address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from sandbox_console import service
from sandbox_console.servers.api import openapi
from sandbox_console.servers.api.authentication import Callers
from sandbox_console.servers.api.error_responses import ErrorResponses
from sandbox_console.servers.api.handlers import Calls, health
from sandbox_console.servers.api.leftovers import ServerLock, Sweeper
from sandbox_console.servers.api.sandboxes import Sandboxes
from sandbox_console.service import find_paths
from sandbox_console.service.bootstrap import known_ground
from sandbox_console.service.tokens import Tokens
from sandbox_console.web.connections import Connections
from sandbox_console.web.listen_sockets import listening
from sandbox_console.web.options import ServeOptions, is_loopback
from sandbox_console.web.run import accepting, server_tls

MOST_BYTES = 4 << 20
"""The most bytes of a request's body."""

CONNECTIONS = 512
"""The most connections: enough for 200 idle clients with two connections each, and more."""


@asynccontextmanager
async def api(
    options: ServeOptions, port: int, console: service.Console, tokens: Tokens, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Serve while inside. Raises ConfigError, Conflict if the port is taken, Unsupported without a2a-pack."""
    tls = server_tls(options, known_ground(options.config))
    with listening(options, port) as held:
        authorities = held.authorities
        state = find_paths(options.config).state
        async with (
            application(console, tokens, authorities, state, say) as app,
            accepting(app, held, tls, Connections(CONNECTIONS, keeps_own=True), cancels=True),
        ):
            if not is_loopback(options.host) and options.scheme == "http":
                say("warning: no TLS: anyone on the network can read the tokens and all that is sent")
            say(f"api: {options.scheme}://{authorities[0]}/")
            yield


@asynccontextmanager
async def application(
    console: service.Console, tokens: Tokens, authorities: Collection[str], state: Path, say: Callable[[str], None]
) -> AsyncIterator[web.Application]:
    """The application for a console, for as long as the block lasts. Raises ConfigError; Unsupported for grants."""
    options = console.config.api
    callers = Callers(tokens, grants_required=options.grants == "required", audience=options.audience)
    await asyncio.to_thread(tokens.every)  # an unusable file is reported now
    life = ServerLock(state / "api")
    try:
        sandboxes = Sandboxes(console, life.id)
        sweeper = Sweeper(sandboxes.console, life, options.backend.partition("/")[0])
        if gone := await sweeper.start():
            say(f"removed {gone} sandboxes of a server that was killed")
        door = ErrorResponses(callers, authorities, options.max_calls)
        try:
            yield _made(Calls(sandboxes, options.max_timeout_s), door)
        finally:
            await door.close()
            await sweeper.close()
            await sandboxes.close()
    finally:
        life.end()


def _made(calls: Calls, door: ErrorResponses) -> web.Application:
    app = web.Application(middlewares=[door.errors, door.enter], client_max_size=MOST_BYTES)
    description = msgspec.json.encode(openapi.document())

    async def described(_: web.Request) -> web.Response:
        return web.Response(body=description, content_type="application/json")

    async def close(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Server"] = "sandbox-console"

    app.on_response_prepare.append(close)
    app.add_routes(
        [
            web.get("/healthz", health),
            web.get("/openapi.json", described),
            web.get("/v1/sandboxes", calls.names),
            web.post("/v1/sandboxes", calls.create),
            web.delete("/v1/sandboxes/{name}", calls.delete),
            web.post("/v1/sandboxes/{name}/exec", calls.exec),
            web.post("/v1/run_shell", calls.run_shell),
            web.post("/v1/run_python", calls.run_python),
        ]
    )
    return app
