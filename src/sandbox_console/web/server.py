"""textual-serve's server behind a login, exact checks, tickets and limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from aiohttp import WSMsgType, web
from textual_serve.server import Server

from sandbox_console.service import find_paths
from sandbox_console.service.browser_sessions import folder_of
from sandbox_console.web import websocket_messages
from sandbox_console.web.app_sessions import AppSession, AppSessions, Full
from sandbox_console.web.checks import FOREIGN, USER, Checks, add_headers, need_origin
from sandbox_console.web.http_handler import Handler
from sandbox_console.web.login_doors import CALLBACK, HEADER, LoginDoors
from sandbox_console.web.logins import Login, Logins
from sandbox_console.web.oidc_login import OidcLogins
from sandbox_console.web.options import ServeOptions
from sandbox_console.web.pages import read_pages
from sandbox_console.web.session_pages import SessionPages
from sandbox_console.web.tickets import TerminalRequest, Tickets
from sandbox_console.web.uploads import Uploads
from sandbox_console.web.visit_records import VisitRecords

_BODY_S = 5.0
_BODY_BYTES = 4096
_POLICY_VIOLATION = 1008
_TRY_AGAIN = 1013
_MESSAGES = frozenset({WSMsgType.TEXT, WSMsgType.PING, WSMsgType.PONG})


class BrowserServer(Server):
    """Serves one Textual app to browsers that have logged in."""

    def __init__(
        self, options: ServeOptions, logins: Logins, authorities: tuple[str, ...], say: Callable[[str], None],
        records: VisitRecords, oidc: OidcLogins | None = None,
    ) -> None:  # fmt: skip
        super().__init__("sandbox-console", public_url=public_url(options, authorities))
        self._options = options
        self._logins = logins
        self._authorities = authorities
        self._say = say
        self._tickets = Tickets()
        self._records = records
        self._views = AppSessions(options, say, records, logins)
        self._doors = LoginDoors(logins, records, say, self.public_url, options.prefix, _json_body, oidc)
        self._pages = read_pages()
        self._uploads = Uploads(folder_of(find_paths()), self._views, self._need_page)
        self._session_pages = SessionPages(self._views, logins, records, self._need_page, _json_body, self._doors.leave)
        self.download_manager = self._views.downloads

    @property
    def views(self) -> AppSessions:
        """The running sessions."""
        return self._views

    def clear(self) -> None:
        """Remove the uploads that servers which were killed have left. Only while no other server runs."""
        self._uploads.clear()

    def count_sessions(self) -> int:
        """How many sessions run."""
        return len(self._views)

    async def _make_app(self) -> web.Application:
        prefix = self._options.prefix
        checks = Checks(
            self._options.scheme,
            self._authorities,
            proxies=self._options.trust_proxy,
            proxied=self._options.proxied_authorities,
            pages=(f"{prefix}/", f"{prefix}/login", f"{prefix}{CALLBACK}"),
            user_header=self._options.user_header,
        )
        app = web.Application(middlewares=[checks.middleware], client_max_size=_BODY_BYTES)
        app.add_routes(
            [
                web.get(f"{prefix}/", self.handle_index),
                web.get(f"{prefix}/login", self.handle_login_page),
                *self._doors.routes(),
                web.post(f"{prefix}/ticket", self.handle_ticket),
                web.get(f"{prefix}/ws", self.handle_websocket),
                web.get(f"{prefix}/download/{{key}}", self.handle_download),
                web.get(f"{prefix}/favicon.ico", self.handle_icon),
                web.get(f"{prefix}/static/{{name:.+}}", self.handle_static),
                web.get(f"{prefix}/sessions", self.handle_sessions),
                *self._session_pages.routes(prefix),
                web.post(f"{prefix}/upload", self._uploads.handle),
            ]
        )
        if prefix:
            app.router.add_get(prefix, self.handle_bare_prefix)
        app.on_response_prepare.append(add_headers)
        app.cleanup_ctx.append(self._lifetime)
        app.on_shutdown.append(self.on_shutdown)
        return app

    async def on_shutdown(self, app: web.Application) -> None:
        """End every session before the listening sockets' connections are waited for."""
        del app
        await self._views.close()

    async def _lifetime(self, _app: web.Application) -> Any:
        watch = asyncio.create_task(self._views.watch())
        yield
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    async def handle_index(self, request: web.Request) -> web.Response:
        """The terminal for a browser that is logged in, or else the login page."""
        page = "console.html" if not request[FOREIGN] and self._login_of(request) else "login.html"
        return self._pages[page].response()

    async def handle_bare_prefix(self, _request: web.Request) -> web.Response:
        """Redirect to the page, whose addresses are relative to its own."""
        raise web.HTTPPermanentRedirect(f"{self._options.prefix}/")

    async def handle_login_page(self, _request: web.Request) -> web.Response:
        """The login page."""
        return self._pages["login.html"].response()

    async def handle_sessions(self, request: web.Request) -> web.Response:
        """The page of one's own sessions, or else the login page."""
        return self._pages["sessions.html" if self._login_of(request) else "login.html"].response()

    async def handle_icon(self, _request: web.Request) -> web.Response:
        """The logo for the browser's tab."""
        return self._pages["logo.svg"].response()

    async def handle_static(self, request: web.Request) -> web.Response:
        """One file of the fixed table."""
        page = self._pages.get(request.match_info["name"])
        if page is None or page.content_type == "text/html":
            raise web.HTTPNotFound(text="No such file.\n")
        return page.response()

    async def handle_ticket(self, request: web.Request) -> web.Response:
        """A ticket for one websocket, for a page that holds both the cookie and the key."""
        login = self._need_page(request)
        order = _order(await _json_body(request))
        if gone := self._views.why_gone(login, order):
            return web.json_response({"gone": gone})
        if self._views.is_full(login, order):
            raise web.HTTPServiceUnavailable(
                text=f"{self._options.max_sessions} sessions are open, the most allowed.\n"
            )
        return web.json_response({"ticket": self._tickets.issue(login, order)})

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Show one app on a websocket with a valid ticket."""
        need_origin(request)
        login = self._need_login(request)
        order = self._tickets.redeem(_ticket(request), login)
        if order is None:
            raise web.HTTPForbidden(text="The ticket is not valid: unknown, used or too old.\n")
        socket = web.WebSocketResponse(
            heartbeat=15,
            timeout=2.0,
            max_msg_size=websocket_messages.MOST_BYTES,
            protocols=(websocket_messages.PROTOCOL,),
            compress=False,
            autoping=False,
        )
        await socket.prepare(request)
        try:
            view = await self._views.open(socket, login, order)
        except Full:
            await socket.close(code=_TRY_AGAIN)
            return socket
        except OSError as error:
            self._say(f"the app cannot be started: {error}")
            await socket.close(code=1011)
            return socket
        try:
            await _pump(socket, view)
        finally:
            await self._views.release(view, socket)
        return socket

    async def handle_download(self, request: web.Request) -> web.StreamResponse:
        """A file that the app offers, always as an attachment, as it may contain a guest's bytes."""
        login = self._need_login(request)
        key = request.match_info["key"]
        try:
            meta = await self.download_manager.get_download_metadata(key)
        except KeyError:
            raise web.HTTPNotFound(text="No such download.\n") from None
        if not self._views.owns(login, meta.app_service):
            raise web.HTTPNotFound(text="No such download.\n")
        name = quote(meta.file_name.encode("utf-8", "replace"), safe="")
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
                "Content-Security-Policy": "sandbox; default-src 'none'",
            }
        )
        await response.prepare(request)
        async for chunk in self.download_manager.download(key):
            await response.write(chunk)
        await response.write_eof()
        return response

    def _login_of(self, request: web.Request) -> Login | None:
        login = self._logins.find(request.cookies.get(self._logins.cookie_name, ""))
        if login is not None and login.by == "proxy" and (login.person is None or request[USER] != login.person.name):
            return None  # the proxy names somebody else by now, or nobody
        if login is not None and isinstance(request.protocol, Handler):
            request.protocol.prove(login.id)
        return login

    def _need_page(self, request: web.Request) -> Login:
        """The login of a page that holds the cookie and the key of its origin."""
        need_origin(request)
        login = self._need_login(request)
        if not login.holds(request.headers.get(HEADER, "")):
            raise web.HTTPUnauthorized(text="Log in again.\n")
        return login

    def _need_login(self, request: web.Request) -> Login:
        login = self._login_of(request)
        if login is None:
            raise web.HTTPUnauthorized(text="Log in first.\n")
        return login


def public_url(options: ServeOptions, authorities: tuple[str, ...]) -> str:
    """The address of the page for browsers."""
    return options.public_url or f"{options.scheme}://{authorities[0]}{options.prefix}"


async def _pump(socket: web.WebSocketResponse, view: AppSession) -> None:
    """Pass messages to the app until the socket closes or breaks the protocol."""
    allowance = websocket_messages.Allowance()
    async for message in socket:
        if not allowance.take() or message.type not in _MESSAGES:
            await socket.close(code=_POLICY_VIOLATION)
            return
        if message.type is not WSMsgType.TEXT:
            if message.type is WSMsgType.PING:
                await socket.pong(message.data)
            continue
        try:
            await view.handle(websocket_messages.parse(message.data))
        except websocket_messages.Malformed as error:
            await socket.close(code=_POLICY_VIOLATION, message=str(error).encode())
            return


async def _json_body(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="JSON is needed.\n")
    try:
        async with asyncio.timeout(_BODY_S):
            body = json.loads(await request.text())
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="The body came too slowly.\n") from None
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest(text="The body is not JSON.\n") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="The body is not a JSON object.\n")
    return body


def _order(body: dict[str, Any]) -> TerminalRequest:
    try:
        columns, rows = websocket_messages.cells(body.get("columns"), body.get("rows"))
    except websocket_messages.Malformed as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None
    view = body.get("view")
    return TerminalRequest(columns, rows, view if isinstance(view, str) else None, body.get("touch") is True)


def _ticket(request: web.Request) -> str:
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    tickets = [word.strip() for word in offered if word.strip().startswith(websocket_messages.TICKET_PREFIX)]
    return tickets[0].removeprefix(websocket_messages.TICKET_PREFIX) if len(tickets) == 1 else ""
