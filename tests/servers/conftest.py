from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.servers.serving import CONFIG, Home, Server, grant, serving
from tests.support.require import missing


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    made = Home(tmp_path_factory.mktemp("served") / "home")
    made.configure(CONFIG)
    yield made
    if names := made.names():
        made.run("rm", "--force", *names)


@pytest.fixture(scope="module")
def token(home: Home) -> str:
    return home.token("agents", "api")


@pytest.fixture(scope="module")
def server(home: Home, token: str) -> Iterator[Server]:
    with serving(home, "--api", "--no-page") as running:
        yield running


Call = Callable[..., "aiohttp.client._RequestContextManager"]


@pytest.fixture
async def call(server: Server, token: str) -> AsyncIterator[Call]:
    """``call("POST", path, body, token=..., grant=...)``; empty leaves a header out."""
    async with aiohttp.ClientSession() as session:

        def one(method: str, path: str, body: object = None, token: str = token, grant: str = grant(), **headers: str):
            given = {"Authorization": f"Bearer {token}", "X-A2A-Grant": grant}
            given = {key: value for key, value in given.items() if value not in ("", "Bearer ")}
            return session.request(method, server.url + path, json=body, headers=given | headers)

        yield one


@pytest.fixture
def tidy(home: Home) -> Iterator[Path]:
    """After the test no sandbox is left."""
    yield home.path
    if names := home.names():
        home.run("rm", "--force", *names)
