"""The ways into one server: a token, a password, a trusted proxy, a provider. Who came, or was refused, is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

from aiohttp import web

from sandbox_console.errors import ConfigError
from sandbox_console.model.audit import Outcome
from sandbox_console.model.text import clean
from sandbox_console.web.login_records import VisitRecords
from sandbox_console.web.logins import Login, Logins, TooManyFailures, WrongToken
from sandbox_console.web.oidc_login import ATTEMPT_S, OidcFailed, OidcLogins
from sandbox_console.web.request_checks import PEER, SCHEME, USER, need_origin

HEADER = "X-Sandbox-Console"
"""Pages of other origins cannot send this header without a preflight request, which is never allowed."""

CALLBACK = "/login/oidc/callback"

_WRONG = {
    "token": "That token is not valid, or was used already. The server's terminal shows a new one.",
    "password": "That name or password is wrong.",
    "proxy": "You are no user of this console. Whoever runs it can add you.",
}
_TOO_MANY = {
    "token": "That token is not valid, as many before it.",
    "password": "There were too many wrong passwords. Wait a minute, or log in with a token.",
}

JsonBody = Callable[[web.Request], Awaitable[dict[str, Any]]]


class LoginDoors:
    """The ways into one server. ``oidc`` is None without a provider."""

    def __init__(
        self, logins: Logins, records: VisitRecords, say: Callable[[str], None], public_url: str, prefix: str,
        json_body: JsonBody, oidc: OidcLogins | None = None,
    ) -> None:  # fmt: skip
        self._logins, self._records, self._say, self._url = logins, records, say, public_url
        self._prefix, self._json_body, self._oidc = prefix, json_body, oidc

    def routes(self) -> list[web.RouteDef]:
        """The addresses that are answered."""
        found = [
            web.get(f"{self._prefix}/login/ways", self.ways),
            web.post(f"{self._prefix}/login", self.log_in),
        ]
        if self._oidc is not None:
            found.append(web.get(f"{self._prefix}/login/oidc", self.go_to_provider))
            found.append(web.get(f"{self._prefix}{CALLBACK}", self.come_back))
        return found

    async def ways(self, request: web.Request) -> web.Response:
        """The ways to log in, beside the token, and whom a trusted proxy names."""
        try:
            password = self._logins.asks_for_passwords
        except ConfigError:
            password = False
        oidc = self._oidc.title if self._oidc else ""
        return web.json_response({"password": password, "proxy": request[USER], "oidc": oidc})

    async def log_in(self, request: web.Request) -> web.Response:
        """Exchange what the page sends for a cookie, and a key that only this origin's pages can keep."""
        need_origin(request)
        if request.headers.get(HEADER) != "login":
            raise web.HTTPForbidden(text=f"The header {HEADER} is needed.\n")
        login = await self._enter(request, await self._json_body(request))
        response = web.json_response({"key": login.key})
        self._set_cookie(request, response, self._logins.cookie_name, login.cookie, "/", "Strict")
        return response

    async def leave(self, login: Login) -> str:
        """Where somebody who logs out here also logs out at the provider; empty without one."""
        return await self._oidc.leave(login.person, f"{self._url}/login") if self._oidc else ""

    async def _enter(self, request: web.Request, body: Mapping[str, Any]) -> Login:
        name, password, peer = body.get("name"), body.get("password"), request[PEER]
        try:
            if body.get("proxy") is True:
                return await self._by_proxy(request[USER], peer)
            if isinstance(name, str) and isinstance(password, str) and name:
                return await self._by_password(name, password, peer)
            return await self._by_token(request, str(body.get("token", "")), peer)
        except ConfigError as error:
            self._say(f"no token can be looked up: {error.message}")
            text = "Tokens cannot be looked up; the server's terminal says why.\n"
            raise web.HTTPServiceUnavailable(text=text) from None

    async def _by_token(self, request: web.Request, token: str, peer: str) -> Login:
        if self._oidc is not None:
            way = request.cookies.get(self._oidc.cookie_name, "")
            if (person := self._oidc.redeem(token, way)) is not None:
                return await self._told(self._logins.admit(person, peer, "oidc"))
        try:
            login = self._logins.exchange(token, peer)
        except WrongToken as error:
            await self._refuse(error, "token", peer)
        await self._told(login)
        if not self._logins.reusable:
            self._say(f"for another browser: {self._url}/#token={self._logins.token}")
        return login

    async def _by_password(self, name: str, password: str, peer: str) -> Login:
        try:
            return await self._told(await self._logins.exchange_password(name, password, peer))
        except WrongToken as error:
            await self._refuse(error, "password", peer, self._logins.known_name(name))

    async def _by_proxy(self, name: str, peer: str) -> Login:
        person = self._logins.named(name)
        if person is None:
            await self._refuse(WrongToken(), "proxy", peer, clean(name)[:63])
        return await self._told(self._logins.admit(person, peer, "proxy"))

    async def _told(self, login: Login) -> Login:
        self._say(f"logged in: {login.actor}")
        await self._records.login(login.actor, Outcome.OK, by=login.by)
        return login

    async def _refuse(self, error: WrongToken, by: str, peer: str, user: str = "") -> NoReturn:
        """Record a refused attempt. Of a flood, only what is within the limit is recorded."""
        if isinstance(error, TooManyFailures):
            raise web.HTTPTooManyRequests(text=f"{_TOO_MANY[by]}\n") from None
        if by != "proxy" or self._logins.count_failure():
            self._say(f"a wrong login {by} from {peer}")
            await self._records.login(f"browser:@{peer}", Outcome.DENIED, by=by, user=user)
        raise web.HTTPForbidden(text=f"{_WRONG[by]}\n") from None

    async def go_to_provider(self, request: web.Request) -> web.StreamResponse:
        """Send the browser to the provider."""
        assert self._oidc is not None  # noqa: S101 - else there is no such address
        try:
            url, way = await self._oidc.begin()
        except OidcFailed as error:
            return await self._failed(request, error)
        response = web.HTTPSeeOther(url)
        self._set_cookie(request, response, self._oidc.cookie_name, way, "/login", "Lax", ATTEMPT_S)
        return response

    async def come_back(self, request: web.Request) -> web.StreamResponse:
        """Take back a browser from the provider, and hand its page a token for one login."""
        assert self._oidc is not None  # noqa: S101 - else there is no such address
        given = [request.query.getall(name, []) for name in ("state", "code")]
        state, code = (values[0] if len(values) == 1 else "" for values in given)
        try:
            token = await self._oidc.come_back(state, code, request.cookies.get(self._oidc.cookie_name, ""))
        except OidcFailed as error:
            return await self._failed(request, error)
        return web.HTTPSeeOther(f"{self._prefix}/login#token={token}")

    async def _failed(self, request: web.Request, error: OidcFailed) -> web.StreamResponse:
        peer = request[PEER]
        if self._logins.count_failure():
            self._say(f"a login at the provider failed, from {peer}: {clean(str(error))}")
            await self._records.login(f"browser:@{peer}", Outcome.DENIED, by="oidc")
        return web.HTTPSeeOther(f"{self._prefix}/login#failed=oidc")

    def _set_cookie(
        self, request: web.Request, response: web.StreamResponse, name: str, value: str, path: str, samesite: str,
        seconds: float | None = None,
    ) -> None:  # fmt: skip
        response.set_cookie(
            name, value, httponly=True, samesite=samesite, secure=request[SCHEME] == "https",
            path=f"{self._prefix}{path}", max_age=None if seconds is None else int(seconds),
        )  # fmt: skip
