"""The page of one's own sessions: what runs, ending one, and logging out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from sandbox_console.web.app_sessions import AppSessions
from sandbox_console.web.login_records import VisitRecords
from sandbox_console.web.logins import Login, Logins

JsonBody = Callable[[web.Request], Awaitable[dict[str, Any]]]
NeedPage = Callable[[web.Request], Login]
Leave = Callable[[Login], Awaitable[str]]


class SessionPages:
    """Answers the requests of that page. ``need_page`` gives the login of a page that holds cookie and key.

    ``leave`` gives the address where a person also logs out at a provider, or an empty text.
    """

    def __init__(
        self, views: AppSessions, logins: Logins, records: VisitRecords, need_page: NeedPage, json_body: JsonBody,
        leave: Leave,
    ) -> None:  # fmt: skip
        self._views, self._logins, self._records = views, logins, records
        self._need_page, self._json_body, self._leave = need_page, json_body, leave

    def routes(self, prefix: str) -> list[web.RouteDef]:
        """The addresses that are answered."""
        return [
            web.post(f"{prefix}/sessions/ls", self.list),
            web.post(f"{prefix}/sessions/end", self.end),
            web.post(f"{prefix}/logout", self.log_out),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """The sessions that a login may see: its own, or all of them for the server's owner."""
        login = self._need_page(request)
        rows = [
            msgspec.to_builtins(info) | {"own": owner == login.id}
            for owner, info in self._views.owned()
            if _sees(login, owner)
        ]
        return web.json_response({"actor": login.actor, "all": login.sees_all, "sessions": rows})

    async def end(self, request: web.Request) -> web.Response:
        """End one of them."""
        login = self._need_page(request)
        wanted = str((await self._json_body(request)).get("id", ""))
        owner = next((owner for owner, info in self._views.owned() if info.id == wanted), None)
        if owner is None or not _sees(login, owner):
            raise web.HTTPNotFound(text="That session is gone already.\n")
        await self._views.end(wanted, f"{login.actor} has ended it")
        return web.json_response({})

    async def log_out(self, request: web.Request) -> web.Response:
        """End the login and every session of it."""
        login = self._need_page(request)
        self._logins.remove(login)
        await self._views.end_of(login, "it was logged out")
        await self._records.logout(login.actor)
        response = web.json_response({"elsewhere": await self._leave(login)})
        response.del_cookie(self._logins.cookie_name, path=request.path.removesuffix("logout"))
        return response


def _sees(login: Login, owner: str) -> bool:
    return login.sees_all or owner == login.id
