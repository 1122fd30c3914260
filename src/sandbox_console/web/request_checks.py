"""Checks that every request must pass before a handler sees it, and the headers of every answer."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), clipboard-read=()",
    "Server": "sandbox-console",
}
"""`style-src` allows inline styles, with which xterm's renderer sets colours and cell sizes, but no inline scripts."""

SCHEME, PEER, FOREIGN, USER = "scheme", "peer", "foreign", "user"
"""Keys of a request: how and from where a browser has reached us, whether it came from another site's link, and whom a
trusted proxy names."""

OWN_PAGES = frozenset({"same-origin", "none"})
"""`Sec-Fetch-Site` of our own pages and of a typed address. Another port of this host is `same-site`."""


def refuse_pages(request: web.Request, authorities: Collection[str]) -> None:
    """Raise 421 for another host name, and 403 for a page in a browser: only programs may call this server."""
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or hosts[0].lower() not in authorities:
        raise web.HTTPMisdirectedRequest(text="this server does not answer to that host name")
    if "Origin" in request.headers:
        raise web.HTTPForbidden(text="pages in a browser may not call this")


class Checks:
    """Checks that ``Host`` and ``Origin`` are exactly an address that this server answers to."""

    def __init__(
        self,
        scheme: str,
        authorities: Collection[str],
        *,
        proxies: Collection[str] = (),
        proxied: Collection[str] = (),
        pages: Collection[str] = (),
        user_header: str = "",
    ) -> None:
        """Answer to ``authorities``, and to ``proxied`` if a request comes through one of ``proxies``.

        ``pages`` are the paths of the login. A link on another site may open them, and then shows only the login.
        ``user_header`` is where such a proxy names the user.
        """
        self._scheme = scheme
        self._authorities = frozenset(authorities)
        self._proxies = frozenset(proxies)
        self._proxied = frozenset(proxied)
        self._pages = frozenset(pages)
        self._user_header = user_header

    @property
    def middleware(self) -> Middleware:
        """The checks as aiohttp middleware."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            self.check(request)
            return await handler(request)

        return check

    def check(self, request: web.Request) -> None:
        """Raise 421 for another host name, 403 for another origin's request."""
        scheme, authorities = self._reached_by(request)
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in authorities:
            raise web.HTTPMisdirectedRequest(text="This server does not answer to that host name.\n")
        if not _is_ours(request.raw_path, scheme, authorities):
            raise web.HTTPMisdirectedRequest(text="This server answers for no other host.\n")
        origins = request.headers.getall("Origin", [])
        if any(origin != f"{scheme}://{hosts[0].lower()}" for origin in origins):
            raise web.HTTPForbidden(text="Another origin's page may not ask this.\n")
        request[FOREIGN] = not OWN_PAGES.issuperset(request.headers.getall("Sec-Fetch-Site", []))
        if request[FOREIGN] and not self._opens_the_login(request):
            raise web.HTTPForbidden(text="Another site's page may not ask this. Type the address in instead.\n")

    def _reached_by(self, request: web.Request) -> tuple[str, Collection[str]]:
        """The scheme and the names by which a browser has reached us, stored with its address for the handlers."""
        request[SCHEME], request[PEER], request[USER] = self._scheme, request.remote or "socket", ""
        schemes = request.headers.getall("X-Forwarded-Proto", [])
        if not schemes or not self._is_proxy(request):
            return self._scheme, self._authorities
        if len(schemes) != 1 or schemes[0].lower() not in ("http", "https"):
            raise web.HTTPBadRequest(text="X-Forwarded-Proto must be http or https, once.\n")
        request[SCHEME] = schemes[0].lower()
        request[PEER] = _client(",".join(request.headers.getall("X-Forwarded-For", []))) or request[PEER]
        request[USER] = self._named_user(request)
        return request[SCHEME], self._proxied

    def _named_user(self, request: web.Request) -> str:
        names = request.headers.getall(self._user_header, []) if self._user_header else []
        if len(names) > 1:  # the proxy has left somebody else's in
            raise web.HTTPBadRequest(text=f"{self._user_header} must be given once.\n")
        return names[0].strip() if names else ""

    def _is_proxy(self, request: web.Request) -> bool:
        link = request.get_extra_info("socket")
        return (link is not None and link.family == socket.AF_UNIX) or request.remote in self._proxies

    def _opens_the_login(self, request: web.Request) -> bool:
        headers = request.headers
        whole_page = headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")
        return request.method == "GET" and request.path in self._pages and whole_page == ("navigate", "document")


def _is_ours(target: str, scheme: str, authorities: Collection[str]) -> bool:
    """Whether the requested target is a path, or a full address of ours as a client of a proxy writes it."""
    if target.startswith("/"):
        return True
    own, _, rest = target.partition("://")
    return own.lower() == scheme and rest.split("/", 1)[0].lower() in authorities


def _client(forwarded: str) -> str:
    """The address that the nearest proxy has seen, which is the last one; empty if it is not an address."""
    last = forwarded.rpartition(",")[2].strip()
    try:
        return ipaddress.ip_address(last).compressed
    except ValueError:
        return ""


def need_origin(request: web.Request) -> None:
    """Raise 403 if no ``Origin`` was sent: browsers always send it with a POST and a websocket."""
    if "Origin" not in request.headers:
        raise web.HTTPForbidden(text="An Origin header is needed.\n")


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to an answer. One that a handler has set stays."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = HEADERS["Server"]
