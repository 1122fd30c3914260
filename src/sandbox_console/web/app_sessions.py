"""The apps running for browsers: a few at most, each shown by one socket, ended when nobody returns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from textual_serve.download_manager import DownloadManager

from sandbox_console.web import websocket_messages
from sandbox_console.web.logins import Login
from sandbox_console.web.options import ServeOptions
from sandbox_console.web.process import AppProcess
from sandbox_console.web.tickets import Order

ENDED = 4000
TAKEN_OVER = 4001
IDLE = 4002


class Full(Exception):
    """As many sessions run as are allowed."""


class AppSession:
    """One app process and, while someone looks, the socket that shows it."""

    def __init__(self, login: Login, options: ServeOptions, downloads: DownloadManager) -> None:
        self.id = secrets.token_urlsafe(16)
        self.login = login
        self.used = time.monotonic()
        self.ended: str | None = None
        self._socket: web.WebSocketResponse | None = None
        self.app = AppProcess(
            options.app_command(),
            actor=login.actor,
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

    async def attach(self, socket: web.WebSocketResponse, order: Order) -> None:
        """Show the app on a socket: a new app starts, a running one repaints; an older socket is closed."""
        old, self._socket = self._socket, socket
        self.used = time.monotonic()
        if old is not None:
            await old.close(code=TAKEN_OVER)
        await self._send_str(json.dumps(["ready", self.id]))
        if old is None and self.app.is_new:
            await self.app.start(order.columns, order.rows)
        else:
            await self.app.set_terminal_size(order.columns, order.rows)
            await self.app.repaint()

    def detach(self, socket: web.WebSocketResponse) -> bool:
        """Forget a socket; whether the app is now without one."""
        if self._socket is socket:
            self._socket = None
        return self._socket is None

    async def handle(self, message: websocket_messages.Message) -> None:
        """Pass one message of the page on to the app."""
        match message:
            case websocket_messages.Ping(text):
                await self._send_str(json.dumps(["pong", text]))
                return
            case websocket_messages.Typed(data):
                await self.app.send_bytes(data)
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

    def __init__(self, options: ServeOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._views: dict[str, AppSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.downloads = DownloadManager()

    def is_full(self, login: Login, order: Order) -> bool:
        """Whether this order would need a session more than is allowed."""
        return self._find(login, order) is None and self._room() <= 0

    async def open(self, socket: web.WebSocketResponse, login: Login, order: Order) -> AppSession:
        """The view that was ordered, attached to the socket: the one from before, or a new one. Raises Full."""
        view = self._find(login, order)
        if view is None:
            if self._room() <= 0:
                raise Full
            view = AppSession(login, self._options, self.downloads)
            self._views[view.id] = view
            self._say(f"session opened for {login.actor}")
        try:
            await view.attach(socket, order)
        except OSError:
            del self._views[view.id]
            raise
        return view

    async def release(self, view: AppSession, socket: web.WebSocketResponse) -> None:
        """Let go of a socket; its app ends unless it is shown again in time."""
        if view.detach(socket) and view.id in self._views:
            self._later(self._end_unless_shown(view))

    async def watch(self) -> None:
        """End what has been idle too long or whose login has run out, for ever."""
        while True:
            await asyncio.sleep(min(5.0, self._options.idle_s / 4))
            now = time.monotonic()
            for view in list(self._views.values()):
                if now - view.used > self._options.idle_s:
                    await self._end(view, f"nothing was typed for {self._options.idle_s:.0f} s")
                elif now > view.login.expires:
                    await self._end(view, "the login has expired")

    async def close(self) -> None:
        """End every app and wait for it."""
        await asyncio.gather(*(self._end(view, "the server was stopped") for view in list(self._views.values())))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _find(self, login: Login, order: Order) -> AppSession | None:
        view = self._views.get(order.view or "")
        return view if view and view.login is login and view.ended is None else None

    def _room(self) -> int:
        return self._options.max_sessions - len(self._views)

    async def _end_unless_shown(self, view: AppSession) -> None:
        until = time.monotonic() + self._options.resume_s
        while view.ended is None and time.monotonic() < until:
            await asyncio.sleep(0.2)
            if view.is_shown:
                return
        await self._end(view, "nobody came back")

    async def _end(self, view: AppSession, reason: str) -> None:
        if self._views.pop(view.id, None) is None:
            return
        reason = view.ended or reason
        await view.close(IDLE, reason)
        await view.app.stop()
        self._say(f"session of {view.login.actor} ended: {reason}")
        for line in view.app.stderr_lines():
            self._say(f"  {line}")

    def _later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
