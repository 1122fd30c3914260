"""Checks that every request must pass before a handler sees it, and the headers of every answer."""

from __future__ import annotations

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
"""`style-src` allows inline styles because xterm's renderer writes its colours and cell sizes so; scripts never."""

OWN_PAGES = frozenset({"same-origin", "none"})
"""`Sec-Fetch-Site` of our own pages and of an address typed in; another port of this host is `same-site`."""


class Checks:
    """Exact ``Host`` and ``Origin``, for the addresses that this server answers to."""

    def __init__(self, scheme: str, authorities: Collection[str]) -> None:
        self._scheme = scheme
        self._authorities = frozenset(authorities)

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
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._authorities:
            raise web.HTTPMisdirectedRequest(text="This server does not answer to that host name.\n")
        if not self._is_ours(request.raw_path):
            raise web.HTTPMisdirectedRequest(text="This server answers for no other host.\n")
        origins = request.headers.getall("Origin", [])
        if any(origin != f"{self._scheme}://{hosts[0].lower()}" for origin in origins):
            raise web.HTTPForbidden(text="Another origin's page may not ask this.\n")
        if not OWN_PAGES.issuperset(request.headers.getall("Sec-Fetch-Site", [])):
            raise web.HTTPForbidden(text="Another site's page may not ask this. Type the address in instead.\n")

    def _is_ours(self, target: str) -> bool:
        """Whether what is asked for is a path, or an address of ours in full, as a proxy's client writes it."""
        if target.startswith("/"):
            return True
        scheme, _, rest = target.partition("://")
        return scheme.lower() == self._scheme and rest.split("/", 1)[0].lower() in self._authorities


def need_origin(request: web.Request) -> None:
    """Raise 403 where no ``Origin`` was sent: browsers always send it with a POST and a websocket."""
    if "Origin" not in request.headers:
        raise web.HTTPForbidden(text="An Origin header is needed.\n")


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Put the security headers on an answer; one that a handler chose stays."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = HEADERS["Server"]
