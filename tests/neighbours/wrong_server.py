"""A server that anybody may run: it answers every request with what its ``mode`` says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

MODES = ("bad json", "another json", "100 MB", "endless", "redirect", "frozen", "half", "page", "gzip")


class WrongServer:
    """``keys`` are what callers sent as their key, ``sent`` the bytes of the last answer that went out."""

    def __init__(self, mode: str = "bad json", elsewhere: str = "") -> None:
        self.mode, self.elsewhere = mode, elsewhere
        self.keys: list[str] = []
        self.sent = 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.keys += [value for name in ("Authorization", "X-A2A-Grant", "OPEN-SANDBOX-API-KEY", "X-API-Key")
                      if (value := request.headers.get(name))]  # fmt: skip
        match self.mode:
            case "bad json":
                return web.Response(body=b'{"result": {"sandboxes": [', content_type="application/json")
            case "another json":
                return web.Response(body=b'{"result": 7, "items": "x", "name": []}', content_type="application/json")
            case "100 MB" | "endless":
                return await self._flood(request, 100 << 20 if self.mode == "100 MB" else 1 << 40)
            case "redirect":
                raise web.HTTPTemporaryRedirect(self.elsewhere or str(request.url))
            case "frozen":
                await asyncio.sleep(3600)
            case "half":
                answer = web.StreamResponse(headers={"Content-Length": "1000"})
                await answer.prepare(request)
                await answer.write(b"{")
                assert request.transport is not None
                request.transport.abort()
                return answer
            case "gzip":
                return web.Response(body=b"\x1f\x8b not gzip", headers={"Content-Encoding": "gzip"})
        return web.Response(status=502, text="<html>a proxy's page</html>")

    async def _flood(self, request: web.Request, size: int) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        self.sent = 0
        while self.sent < size:
            await answer.write(b" " * 65536)
            self.sent += 65536
        return answer


@asynccontextmanager
async def wrong_server(mode: str, elsewhere: str = "") -> AsyncIterator[WrongServer]:
    """One that listens on a free port of the loopback."""
    wrong = WrongServer(mode, elsewhere)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", wrong.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    wrong.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    try:
        yield wrong
    finally:
        await runner.cleanup()
