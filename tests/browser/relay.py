"""A relay on 127.0.0.1 that textual-web can be a client of, with one viewer; packets are msgpack lists as in its packets.py."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

DECLARE_APPS, SESSION_OPEN, SESSION_CLOSE, SESSION_DATA, TERMINAL_SIZE = 5, 6, 7, 8, 11
SESSION, ROUTE = "session-1", "route-1"


class Relay:
    def __init__(self) -> None:
        self.apps: list[dict] = []
        self.seen = b""
        self.headers: dict[str, str] = {}
        self.closed = False
        self._socket: web.WebSocketResponse | None = None
        self._changed = asyncio.Condition()

    async def accept(self, request: web.Request) -> web.WebSocketResponse:
        self._socket = socket = web.WebSocketResponse()
        self.headers = dict(request.headers)
        await socket.prepare(request)
        async for message in socket:
            await self._take(*msgspec.msgpack.decode(message.data))
        return socket

    async def _take(self, kind: int, *data) -> None:
        async with self._changed:
            if kind == DECLARE_APPS:
                self.apps = data[0]
            elif kind == SESSION_DATA:
                assert data[0] == ROUTE
                self.seen += data[1]
            elif kind == SESSION_CLOSE:
                self.closed = True
            self._changed.notify_all()

    async def until(self, check, seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(check)

    async def sees(self, text: bytes) -> None:
        """Wait until the app has painted a text since the last call."""
        try:
            await self.until(lambda: text in self.seen)
        except TimeoutError:
            raise AssertionError(f"{text!r} is not in {self.seen[-3000:]!r}") from None
        self.seen = self.seen.partition(text)[2]

    async def send(self, *packet) -> None:
        await self._socket.send_bytes(msgspec.msgpack.encode(packet))

    async def open(self, columns: int, rows: int) -> None:
        await self.until(lambda: self.apps)
        await self.send(SESSION_OPEN, SESSION, "app-1", self.apps[0]["slug"], ROUTE, columns, rows)

    async def type(self, keys: bytes) -> None:
        await self.send(SESSION_DATA, ROUTE, keys)

    async def resize(self, columns: int, rows: int) -> None:
        await self.send(TERMINAL_SIZE, SESSION, columns, rows)

    async def leave(self) -> None:
        await self.send(SESSION_CLOSE, SESSION, ROUTE)


@asynccontextmanager
async def relay():
    it = Relay()
    app = web.Application()
    app.router.add_get("/app-service/", it.accept)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 8080).start()
    try:
        yield it
    finally:
        await runner.cleanup()
