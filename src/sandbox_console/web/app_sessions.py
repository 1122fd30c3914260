"""The apps that run for browsers: a few at most, each shown on one socket, and ended when nobody returns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable

from aiohttp import WSCloseCode, web
from textual_serve.download_manager import DownloadManager

from sandbox_console.service.browser_sessions import BrowserSession
from sandbox_console.web import websocket_messages
from sandbox_console.web.logins import Login, Logins
from sandbox_console.web.options import ServeOptions
from sandbox_console.web.process import AppProcess
from sandbox_console.web.tickets import TerminalRequest
from sandbox_console.web.visit_records import SESSION, VisitRecords

ENDED = 4000
TAKEN_OVER = 4001
IDLE = 4002
SHOWN_ID = 12
_MOST_GONE = 256
LOOK_S = 0.5
"""How often it is looked whether a session has to end, because of its user for instance."""


class Full(Exception):
    """No more sessions are allowed."""


class AppSession:
    """One app process and, while somebody is looking, the socket that shows it."""

    def __init__(self, login: Login, options: ServeOptions, downloads: DownloadManager) -> None:
        self.id = secrets.token_hex(16)
        self.login = login
        self.began_at = time.time()
        self.used = time.monotonic()
        self.ended: str | None = None
        self.left_at: float | None = None
        self.tab_closed = False
        self.when_over: list[Callable[[], None]] = []
        self._delay = websocket_messages.Delay()
        self._socket: web.WebSocketResponse | None = None
        self.app = AppProcess(
            options.app_command(),
            actor=login.actor,
            person=login.person.passed_on if login.person else "",
            pass_env=options.pass_env,
            write_bytes=self._send_bytes,
            write_str=self._send_str,
            ended=self._on_end,
            downloads=downloads,
        )

    @property
    def is_shown(self) -> bool:
        """Whether a socket is attached."""
        return self._socket is not None

    def info(self) -> BrowserSession:
        """What others may know about it. The id is a short one: the whole one is what a page comes back with."""
        now = time.monotonic()
        away = None if self.left_at is None else now - self.left_at
        return BrowserSession(self.id[:SHOWN_ID], self.login.actor, self.began_at, now - self.used, away)

    async def attach(self, socket: web.WebSocketResponse, order: TerminalRequest) -> None:
        """Show the app on a socket: a new app starts, a running one repaints; an older socket is closed."""
        old, self._socket = self._socket, socket
        away = None if self.left_at is None else time.monotonic() - self.left_at
        self.used, self.left_at, self.tab_closed = time.monotonic(), None, False
        self._delay = websocket_messages.Delay()
        if old is not None:
            await old.close(code=TAKEN_OVER)
        await self._send_str(json.dumps(["ready", self.id]))
        about = {"user": self.login.actor, "seconds": round(time.time() - self.began_at), "away": away}
        await self._send_str(json.dumps(["about", about]))
        await self._send_str(json.dumps(["faults", self.app.faults]))
        if old is None and self.app.is_new:
            self.app.by_touch = order.touch
            await self.app.start(order.columns, order.rows)
        else:
            await self.app.set_terminal_size(order.columns, order.rows)
            await self.app.repaint(away)

    def detach(self, socket: web.WebSocketResponse) -> bool:
        """Forget a socket. Returns whether the app is now without one."""
        if self._socket is socket:
            self._socket, self.left_at = None, time.monotonic()
            self.tab_closed = socket.close_code == WSCloseCode.GOING_AWAY
        return self._socket is None

    async def handle(self, message: websocket_messages.Message) -> None:
        """Pass one message of the page on to the app."""
        match message:
            case websocket_messages.Ping(text):
                self._delay.note(message)
                await self._send_str(json.dumps(["pong", text]))
                return
            case websocket_messages.Typed(data):
                if self._delay.is_late(message):
                    await self._send_str(json.dumps(["late", data.decode()]))
                    return
                await self.app.send_bytes(data)
            case websocket_messages.ThemeSwitched():
                await self.app.send_meta({"type": "theme"})
            case websocket_messages.Resized(columns, rows):
                await self.app.set_terminal_size(columns, rows)
            case websocket_messages.Focused(on):
                await (self.app.focus() if on else self.app.blur())
        self.used = time.monotonic()

    async def close(self, code: int, reason: str) -> None:
        """Close the socket, saying why."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close(code=code, message=reason.encode()[:120])

    async def _send_bytes(self, data: bytes) -> None:
        if (socket := self._socket) is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                await socket.send_bytes(data)

    async def _send_str(self, text: str) -> None:
        if (socket := self._socket) is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                await socket.send_str(text)

    async def _on_end(self, reason: str) -> None:
        self.ended = reason
        await self.close(ENDED, reason)


class AppSessions:
    """Every running view of one server, with the limit on their number and the clock that ends them."""

    def __init__(
        self, options: ServeOptions, say: Callable[[str], None], records: VisitRecords, logins: Logins
    ) -> None:
        self._options, self._records, self._logins = options, records, logins
        self._say = say
        self._views: dict[str, AppSession] = {}
        self._gone: dict[str, str] = {}
        self.downloads = DownloadManager()

    def __len__(self) -> int:
        return len(self._views)

    def infos(self) -> list[BrowserSession]:
        """What runs."""
        return [view.info() for view in self._views.values()]

    def owned(self) -> list[tuple[str, BrowserSession]]:
        """What runs, each with the id of its login."""
        return [(view.login.id, view.info()) for view in self._views.values()]

    async def end(self, shown_id: str, reason: str) -> bool:
        """End a session by the id that is shown. Returns whether there was one."""
        found = [view for view in self._views.values() if view.id.startswith(shown_id) and len(shown_id) == SHOWN_ID]
        await asyncio.gather(*(self._end(view, reason) for view in found))
        return bool(found)

    async def end_of(self, login: Login, reason: str) -> None:
        """End every session of a login."""
        own = [view for view in self._views.values() if view.login is login]
        await asyncio.gather(*(self._end(view, reason) for view in own))

    def of_page(self, login: Login, id_: str) -> AppSession | None:
        """The running session with this whole id, if it is of this login."""
        view = self._views.get(id_)
        return view if view and view.login is login and view.ended is None else None

    def owns(self, login: Login, app: object) -> bool:
        """Whether an app runs for a login."""
        return any(view.app is app and view.login is login for view in self._views.values())

    def is_full(self, login: Login, order: TerminalRequest) -> bool:
        """Whether this order would need one more session than allowed."""
        return self._find(login, order) is None and self._room() <= 0 and self._yielding(login) is None

    def why_gone(self, login: Login, order: TerminalRequest) -> str:
        """Why the session of a page has ended; empty if it had none, or if it is still running."""
        if not order.view or self._find(login, order) is not None:
            return ""
        if order.view in self._views:
            return "it belongs to another login"
        return self._gone.get(order.view, "the server was started again since")

    async def open(self, socket: web.WebSocketResponse, login: Login, order: TerminalRequest) -> AppSession:
        """The view that was ordered, attached to the socket: the one from before, or a new one. Raises Full."""
        view = self._find(login, order)
        if view is None:
            if self._room() <= 0 and (oldest := self._yielding(login)) is not None:
                await self._end(oldest, "a newer session took its place")
            if self._room() <= 0:
                raise Full
            view = AppSession(login, self._options, self.downloads)
            self._views[view.id] = view
            self._say(f"session opened for {login.actor}")
            await self._records.begin(SESSION, view.id, login.actor, {"session": view.id[:8]})
        try:
            await view.attach(socket, order)
        except OSError as error:
            self._views.pop(view.id, None)
            await self._records.end(view.id, f"the app cannot be started: {error}")
            raise
        return view

    async def release(self, view: AppSession, socket: web.WebSocketResponse) -> None:
        """Detach a socket. Its app ends unless it is shown again in time."""
        if view.detach(socket) and view.ended is not None:
            await self._end(view, view.ended)

    async def watch(self) -> None:
        """End sessions that were idle for too long or whose login has ended; runs until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_S, self._options.idle_s / 4, max(self._options.resume_s / 2, 0.05)))
            now = time.monotonic()
            for view in list(self._views.values()):
                if reason := self._over(view, now):
                    await self._end(view, reason)

    async def close(self) -> None:
        """End every app and wait for it."""
        await asyncio.gather(*(self._end(view, "the server was stopped") for view in list(self._views.values())))

    def _find(self, login: Login, order: TerminalRequest) -> AppSession | None:
        view = self._views.get(order.view or "")
        return view if view and view.login is login and view.ended is None else None

    def _over(self, view: AppSession, now: float) -> str:
        """Why a session has to end now; empty if it does not."""
        if view.ended is not None:
            return view.ended
        if ended := self._logins.over(view.login):
            return ended
        if view.left_at is not None:
            return "nobody came back" if now - view.left_at > self._options.resume_s else ""
        return f"nothing was typed for {self._options.idle_s:.0f} s" if now - view.used > self._options.idle_s else ""

    def _yielding(self, login: Login) -> AppSession | None:
        """The session that makes room for a login's new one: one whose tab was closed, else an unseen one of its own.

        Else it is one of somebody who has most of the places and is no admin, if the login has none.

        A tab that is only being reloaded takes its session up again long before it is needed.
        """
        unseen = [(not view.tab_closed, view.left_at, view) for view in self._views.values() if view.left_at]
        yielding = [one for one in unseen if not one[0] or one[2].login is login]
        return min(yielding, key=lambda one: one[:2], default=(True, 0.0, self._crowding(login)))[2]

    def _crowding(self, login: Login) -> AppSession | None:
        """For somebody who has no session: the least used one of who has most of the places. An admin's stays."""
        places = Counter(view.login.whose for view in self._views.values())
        [(whose, count)] = places.most_common(1) or [("", 0)]
        if login.whose in places or count <= max(1, self._options.max_sessions // 2):
            return None
        theirs = [view for view in self._views.values() if view.login.whose == whose and not view.login.sees_all]
        return min(theirs, key=lambda view: view.used, default=None)

    def _room(self) -> int:
        return self._options.max_sessions - len(self._views)

    async def _end(self, view: AppSession, reason: str) -> None:
        if self._views.pop(view.id, None) is None:
            return
        reason = view.ended or reason
        self._gone[view.id] = reason
        while len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        await view.close(IDLE, reason)
        await view.app.stop()
        for clear in view.when_over:
            clear()
        await self._records.end(view.id, reason)
        self._say(f"session of {view.login.actor} ended: {reason}")
        for line in view.app.stderr_lines():
            self._say(f"  {line}")
