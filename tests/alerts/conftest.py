from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.incident.conftest import Make, console, make
from tests.library.conftest import backend, home
from tests.support.engine import docker_engine

from sandbox_console.model.alert import Alert, AlertMessage, AlertState

__all__ = ["Make", "backend", "console", "docker_engine", "home", "make"]


class Receiver:
    """A web server that takes messages: it answers ``status``, and keeps what it got."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.tries = 0
        self.got: list[dict[str, Any]] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/hook", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}/hook"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _take(self, request: web.Request) -> web.Response:
        data = await request.read()
        self.tries += 1
        self.requests.append((dict(request.headers), data))
        if self.status == 200:
            self.got.append(json.loads(data))
        return web.Response(status=self.status, headers=self.headers)

    def alerts(self, status: str = "firing") -> list[str]:
        """The ids of the alerts in what arrived."""
        return [alert["id"] for one in self.got if one["status"] == status for alert in one["alerts"]]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    await made.start()
    yield made
    await made.stop()


def message(*texts: str, id_: str = "msg_1", status: Any = "firing", name: str = "web") -> AlertMessage:
    alerts = tuple(
        Alert(
            f"alert_{number}",
            "died",
            "critical",
            f"fake/local/id{number}",
            name,
            AlertState.FIRING,
            1e9,
            text,
            fired_at=1e9,
        )
        for number, text in enumerate(texts or ("out of memory",))
    )
    return AlertMessage(id_, "died", "critical", status, 1e9, "here", alerts, 1e9 + 600)


async def until(ready: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not ready():
            await asyncio.sleep(0.05)


def write_config(home: Path, text: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    path = home / "config.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path
