"""Listens, prints the address once, and ends everything on SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from typing import cast

from aiohttp import web

from sandbox_console.errors import Conflict, ConsoleError, UsageError
from sandbox_console.hostfs.files import opened
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.service import find_paths
from sandbox_console.service.bootstrap import known_ground
from sandbox_console.service.tokens import Tokens
from sandbox_console.web.logins import Logins, given_token
from sandbox_console.web.options import ServeOptions, is_loopback
from sandbox_console.web.server import BrowserServer

HEADER_S = 5.0
"""A connection must have sent a whole request header within this, and the next one after an answer."""
CONNECTIONS = 64
_BACKLOG = 64
_HINTS = {errno.EADDRNOTAVAIL: "name an address of this machine: ip addr", errno.EACCES: "choose a port from 1024 on"}


class _Entry(asyncio.Protocol):
    """Hands a new connection on to aiohttp, or hangs up where there are as many as are allowed.

    Not in the factory of protocols: asyncio accepts dozens of connections before the first one is counted.
    """

    def __init__(self, server: web.Server, most: int) -> None:
        self._server = server
        self._most = most

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self._server.connections) >= self._most:
            transport.close()
            return
        handler = self._server()
        transport.set_protocol(handler)
        handler.connection_made(transport)


async def run(options: ServeOptions, say: Callable[[str], None]) -> int:
    """Serve until a signal comes; returns the exit code. Raises ConsoleError where it cannot begin."""
    stopped = stop_signal()
    async with page(options, say):
        await stopped.wait()
    return 0


def stop_signal() -> asyncio.Event:
    """Set by SIGINT or SIGTERM from now on."""
    stopped = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stopped.set)
    return stopped


@contextlib.asynccontextmanager
async def page(options: ServeOptions, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Show the app to browsers while inside. Raises ConsoleError where it cannot begin."""
    ground = known_ground(options.config)
    tls = server_tls(options, ground)
    logins = Logins(given_token(options.token_file, ground=ground), tokens=Tokens(find_paths().tokens))
    with listening(options, options.port) as socket_:
        server = BrowserServer(options, logins, options.authorities(socket_.getsockname()[1]), say)
        app = await server._make_app()  # noqa: SLF001 - textual-serve's own name for it
        async with accepting(app, socket_, tls):
            _announce(options, server.public_url, logins, say)
            yield


@contextlib.asynccontextmanager
async def accepting(
    app: web.Application, listening: socket.socket, tls: ssl.SSLContext | None, *,
    most: int = CONNECTIONS, cancels: bool = False,
) -> AsyncIterator[None]:  # fmt: skip
    """Answer requests while inside; on the way out no new connection, then no session is left.

    ``most`` connections at a time; with ``cancels`` a client that goes away cancels what is done for it.
    """
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=HEADER_S, shutdown_timeout=2.0, handler_cancellation=cancels
    )
    await runner.setup()
    web_server = cast("web.Server", runner.server)
    try:
        accepting = await asyncio.get_running_loop().create_server(
            lambda: _Entry(web_server, most),
            sock=listening,
            ssl=tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=HEADER_S if tls else None,
        )
        try:
            yield
        finally:
            accepting.close()
    finally:
        await runner.cleanup()


def say_on_stderr(line: str) -> None:
    """Print a line of talk."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - stdout is for data


def _announce(options: ServeOptions, url: str, logins: Logins, say: Callable[[str], None]) -> None:
    if not is_loopback(options.host) and options.scheme == "http":
        say("warning: no TLS: anyone on the network can read the login and everything shown")
    if logins.reusable:
        say(f"{url}/  (log in with the token you gave)")
    else:
        say(f"{url}/#token={logins.token}")
    say("the link works once; stop with Ctrl+C" if not logins.reusable else "stop with Ctrl+C")


def listening(options: ServeOptions, port: int) -> socket.socket:
    """A socket at the address of the options and a port. Raises UsageError, Conflict where it is taken."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(options.bind, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, proto)
    except OSError as error:
        raise UsageError(f"{options.host} is not an address of this machine: {error}", hint="see: ip addr") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        message = f"cannot listen on {options.host} port {port}: {error.strerror}"
        hint = _HINTS.get(error.errno or 0, "leave --port out for a free one")
        raise Conflict(message, hint=hint) from error
    return made


def server_tls(options: ServeOptions, ground: GuestFolders) -> ssl.SSLContext | None:
    """What the certificate of the options makes; None without one. Raises ConsoleError."""
    if not options.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        with contextlib.ExitStack() as files:
            pair = [files.enter_context(opened(one, ground)) if one else None for one in (options.cert, options.key)]
            cert, key = (f"/proc/self/fd/{one.fileno()}" if one else None for one in pair)
            assert cert is not None  # noqa: S101 - it is given
            context.load_cert_chain(cert, key)  # OpenSSL opens by name, so the very files that were opened are named
    except (OSError, ssl.SSLError) as error:
        message = f"the certificate {options.cert} cannot be used: {error}"
        raise ConsoleError(message, hint="both files must be PEM, and belong together") from error
    return context
