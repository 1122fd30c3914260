"""Lets people in by a token or by a password, and records who came and who was refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from aiohttp import web

from sandbox_console.errors import ConfigError
from sandbox_console.model.audit import Outcome
from sandbox_console.web.logins import Login, Logins, TooManyFailures, WrongToken
from sandbox_console.web.visit_records import VisitRecords

_WRONG = {
    "token": "That token is not valid, or was used already. The server's terminal shows a new one.",
    "password": "That name or password is wrong.",
}
_TOO_MANY = {
    "token": "That token is not valid, as many before it.",
    "password": "There were too many wrong passwords. Wait a minute, or log in with a token.",
}


class LoginDoors:
    """The ways into one server."""

    def __init__(self, logins: Logins, records: VisitRecords, say: Callable[[str], None], public_url: str) -> None:
        self._logins, self._records, self._say, self._url = logins, records, say, public_url

    async def enter(self, body: Mapping[str, Any], peer: str) -> Login:
        """A login for what the page has sent. Raises 403 if it is wrong, 429 after too many wrong ones."""
        name, password = body.get("name"), body.get("password")
        if isinstance(name, str) and isinstance(password, str) and name:
            return await self._by_password(name, password, peer)
        return await self._by_token(str(body.get("token", "")), peer)

    async def _by_token(self, token: str, peer: str) -> Login:
        try:
            login = self._logins.exchange(token, peer)
        except ConfigError as error:
            self._unreadable(error)
        except WrongToken as error:
            await self._refuse(error, "token", peer)
        await self._tell(login, "token")
        if not self._logins.reusable:
            self._say(f"for another browser: {self._url}/#token={self._logins.token}")
        return login

    async def _by_password(self, name: str, password: str, peer: str) -> Login:
        try:
            login = await self._logins.exchange_password(name, password, peer)
        except ConfigError as error:
            self._unreadable(error)
        except WrongToken as error:
            await self._refuse(error, "password", peer, self._logins.known_name(name))
        await self._tell(login, "password")
        return login

    async def _tell(self, login: Login, by: str) -> None:
        self._say(f"logged in: {login.actor}")
        await self._records.login(login.actor, Outcome.OK, by=by)

    async def _refuse(self, error: WrongToken, by: str, peer: str, user: str = "") -> NoReturn:
        """Of a flood, only what is within the limit is recorded."""
        if isinstance(error, TooManyFailures):
            raise web.HTTPTooManyRequests(text=f"{_TOO_MANY[by]}\n") from None
        self._say(f"a wrong login {by} from {peer}")
        await self._records.login(f"browser:@{peer}", Outcome.DENIED, by=by, user=user)
        raise web.HTTPForbidden(text=f"{_WRONG[by]}\n") from None

    def _unreadable(self, error: ConfigError) -> NoReturn:
        self._say(f"no token can be looked up: {error.message}")
        text = "Tokens cannot be looked up; the server's terminal says why.\n"
        raise web.HTTPServiceUnavailable(text=text) from None
