"""Listens, prints the address once, and ends everything on SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import signal
import ssl
import sys
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

from aiohttp import web

from sandbox_console.errors import ConsoleError
from sandbox_console.hostfs.files import opened
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.service import find_paths
from sandbox_console.service.bootstrap import known_ground
from sandbox_console.service.browser_sessions import folder_of
from sandbox_console.service.people.users import Users
from sandbox_console.service.tokens import Tokens
from sandbox_console.web.connections import HEADER_S, Acceptor, Connections
from sandbox_console.web.listen_sockets import Listening, listening
from sandbox_console.web.login_methods import CALLBACK
from sandbox_console.web.login_records import login_records
from sandbox_console.web.logins import Logins, given_token
from sandbox_console.web.oidc_client import Provider
from sandbox_console.web.oidc_login import OidcLogins
from sandbox_console.web.options import ServeOptions, is_loopback
from sandbox_console.web.server import BrowserServer, public_url
from sandbox_console.web.session_control import session_control

Show = Callable[[str], Awaitable[None]]
"""Opens an address in a browser."""

CONNECTIONS = 64
"""The most connections of browsers that have not shown a login."""


async def run(options: ServeOptions, say: Callable[[str], None]) -> int:
    """Serve until a signal comes; returns the exit code. Raises ConsoleError if it cannot start."""
    stopped = stop_signal()
    async with page(options, say, default_browser(say) if options.open else None):
        await stopped.wait()
    return 0


async def _provider(options: ServeOptions, held: Listening) -> OidcLogins | None:
    """The logins at the provider of the options. Raises SecretError, Unsupported."""
    if options.oidc is None:
        return None
    url = public_url(options, held.authorities)
    return OidcLogins(options.oidc, Provider(options.oidc, await options.oidc.secret(), f"{url}{CALLBACK}"))


def stop_signal() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set from now on."""
    stopped = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stopped.set)
    return stopped


@contextlib.asynccontextmanager
async def page(
    options: ServeOptions, say: Callable[[str], None], show: Show | None = None
) -> AsyncIterator[Callable[[], int]]:
    """Show the app to browsers while inside. Gives the number of sessions. Raises ConsoleError if it cannot start.

    ``show`` opens the address of a file that leads to the page, as a token must not be in an argument list.
    """
    guest_folders = known_ground(options.config)
    tls = server_tls(options, guest_folders)
    credentials = find_paths().tokens
    own_token = given_token(options.token_file, ground=guest_folders)
    logins = Logins(own_token, tokens=Tokens(credentials), users=Users(credentials))
    async with contextlib.AsyncExitStack() as stack:
        held = stack.enter_context(listening(options, options.port, guest_folders))
        records = await stack.enter_async_context(login_records(options.config, say, on=options.command is None))
        server = BrowserServer(options, logins, held.authorities, say, records, await _provider(options, held))
        await stack.enter_async_context(session_control(folder_of(find_paths()), server.views, say, server.clear))
        app = await server._make_app()  # noqa: SLF001 - textual-serve's own name for it
        async with accepting(app, held, tls, Connections(CONNECTIONS)):
            _announce(options, server.public_url, logins, say)
            if show is not None:
                link = await asyncio.to_thread(_write_link, f"{server.public_url}/", logins)
                stack.callback(link.unlink, missing_ok=True)
                await show(link.as_uri())
            if held.lacks:
                say(f"warning: {held.lacks} port {held.port} is another program's: do not open localhost:{held.port}")
            yield server.count_sessions


@contextlib.asynccontextmanager
async def accepting(
    app: web.Application, listening: Listening, tls: ssl.SSLContext | None, seats: Connections, *, cancels: bool = False
) -> AsyncIterator[None]:
    """Answer requests while inside. On the way out, connections are refused first, and then sessions are ended.

    ``seats`` limits connections. With ``cancels``, a client that goes away cancels what is done for it.
    """
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=HEADER_S, shutdown_timeout=2.0, handler_cancellation=cancels
    )
    await runner.setup()
    acceptors = [Acceptor(cast("web.Server", runner.server), sock, seats, tls) for sock in listening.sockets]
    try:
        yield
    finally:
        await asyncio.gather(*(acceptor.close() for acceptor in acceptors))
        await runner.cleanup()


def say_on_stderr(line: str) -> None:
    """Print a message."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - stdout is for data


def _announce(options: ServeOptions, url: str, logins: Logins, say: Callable[[str], None]) -> None:
    if not options.socket and not is_loopback(options.host) and options.scheme == "http":
        say("warning: no TLS: anyone on the network can read the login and everything shown")
    if logins.reusable:
        say(f"{url}/  (log in with the token you gave)")
    else:
        say(f"{url}/#token={logins.token}")
    say("the link works once; stop with Ctrl+C" if not logins.reusable else "stop with Ctrl+C")
    if options.user_header and any(map(is_loopback, options.trust_proxy)):
        say("warning: every account of this machine can connect as the proxy and name any user; --socket prevents that")


def default_browser(say: Callable[[str], None]) -> Show:
    """Return what opens an address in this machine's default browser."""

    async def show(link: str) -> None:
        if not await asyncio.to_thread(webbrowser.open, link):
            say("no browser was found on this machine: open the link yourself")

    return show


def _write_link(url: str, logins: Logins) -> Path:
    """Write a file, readable by this user only, that leads to the page."""
    link = html.escape(url if logins.reusable else f"{url}#token={logins.token}")
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={link}">\n'
    folder = find_paths().state
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(suffix=".html", prefix="open-", dir=folder)
    with os.fdopen(descriptor, "w") as file:
        file.write(page)
    return Path(name)


def server_tls(options: ServeOptions, guest_folders: GuestFolders) -> ssl.SSLContext | None:
    """The TLS context for the certificate of the options; None without one. Raises ConsoleError."""
    if not options.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        with contextlib.ExitStack() as files:
            pair = [
                files.enter_context(opened(one, guest_folders)) if one else None for one in (options.cert, options.key)
            ]
            cert, key = (f"/proc/self/fd/{one.fileno()}" if one else None for one in pair)
            assert cert is not None  # noqa: S101 - it is given
            context.load_cert_chain(cert, key)  # OpenSSL opens by name, so name the files that were opened
    except (OSError, ssl.SSLError) as error:
        message = f"the certificate {options.cert} cannot be used: {error}"
        raise ConsoleError(message, hint="both files must be PEM, and belong together") from error
    return context
