"""The API on an address of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sandbox_console import service
from sandbox_console.servers.api.server import application
from sandbox_console.service import find_paths
from sandbox_console.service.bootstrap import known_ground
from sandbox_console.service.tokens import Tokens
from sandbox_console.web.connections import Seats
from sandbox_console.web.listening import listening
from sandbox_console.web.options import ServeOptions, is_loopback
from sandbox_console.web.run import accepting, server_tls

CONNECTIONS = 512
"""200 idle clients with two connections each, and some room."""


@asynccontextmanager
async def api(
    options: ServeOptions, port: int, console: service.Console, tokens: Tokens, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Answer while inside. Raises ConfigError, Conflict where the port is taken, Unsupported without a2a-pack."""
    tls = server_tls(options, known_ground(options.config))
    with listening(options, port) as held:
        authorities = held.authorities
        state = find_paths(options.config).state
        async with (
            application(console, tokens, authorities, state, say) as app,
            accepting(app, held, tls, Seats(CONNECTIONS, keeps_own=True), cancels=True),
        ):
            if not is_loopback(options.host) and options.scheme == "http":
                say("warning: no TLS: anyone on the network can read the tokens and all that is sent")
            say(f"api: {options.scheme}://{authorities[0]}/")
            yield
