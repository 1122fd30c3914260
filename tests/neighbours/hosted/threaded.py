"""An aiohttp application in a thread of its own, for stand-ins that serve a whole module of tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def served(app: web.Application) -> Iterator[str]:
    """Serve it on a free port of the loopback; yields its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def begin() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    try:
        yield f"http://127.0.0.1:{asyncio.run_coroutine_threadsafe(begin(), loop).result(30)}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        asyncio.run_coroutine_threadsafe(_cancelled(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _cancelled() -> None:
    """End what handlers still wait for."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for one in rest:
        one.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
