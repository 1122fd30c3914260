"""E2B and Daytona whose API lies in its own protocol: ids, numbers, depth, amounts and headers that nobody expects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from tests.neighbours.hosted.threaded import served

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.daytona import DaytonaProvider
from sandbox_console.backends.e2b import E2bProvider
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Exec
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.testing.conformance.rig import resident_mib
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
PROVIDERS = {"e2b": E2bProvider, "daytona": DaytonaProvider}
DIGITS = "1" * 5000  # more than Python turns into text
ODD_IDS = (
    "..",
    ".",
    "",
    "a/../../b",
    "/etc/passwd",
    "a\r\nX-Evil: 1",
    "\x1b[31mred",
    "a\0b",
    "\u202ex",
    "x" * 100_000,
    "%2e%2e",
)


class Liar:
    """Answers a list with ``page`` and everything else with ``one``; ``asked`` are the raw paths that it was asked."""

    def __init__(self, name: str) -> None:
        self.name, self.url = name, ""
        self.page: Callable[[int], bytes] = lambda _: b"[]"
        self.one: bytes = b"{}"
        self.endless = False
        self.asked: list[str] = []
        self._pages = 0

    def box(self, id_: str, **more: Any) -> dict[str, Any]:
        running = {"state": "running"} if self.name == "e2b" else {"state": "started"}
        return {"sandboxID" if self.name == "e2b" else "id": id_, **running, **more}

    def boxes(self, *found: dict[str, Any]) -> bytes:
        return json.dumps(found if self.name == "e2b" else {"items": found}).encode()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.raw_path)
        if request.path not in ("/v2/sandboxes", "/sandbox"):
            return web.Response(body=self.one, content_type="application/json")
        self._pages += 1
        headers = {"X-Next-Token": str(self._pages)} if self.endless else {}
        return web.Response(body=self.page(self._pages), content_type="application/json", headers=headers)


@pytest.fixture(params=PROVIDERS)
def liar(request):
    made = Liar(request.param)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    with served(app) as url:
        made.url = url
        yield made


@pytest.fixture
async def backend(liar, tmp_path):
    async def read(_: str) -> str:
        return "a-key"

    inside = {"e2b": "sandboxes", "daytona": "toolbox"}[liar.name]
    table = {"url": liar.url, inside: liar.url, "key": "KEY"}
    settings = BackendSettings(tmp_path, {"servers": {"lab": table}}, key=read)
    [made] = PROVIDERS[liar.name].backends(settings)
    yield made
    await made.close()


def ref(liar: Liar, id_: str) -> SandboxRef:
    return SandboxRef(liar.name, "lab", id_)


NUMBERS = ("NaN", "Infinity", "1e999", "-1e999", DIGITS, '{"a": 1}', "[]", "true", '"2"')


@pytest.mark.parametrize("number", NUMBERS, ids=lambda one: one[:9])
async def test_no_number_is_a_crash(liar, backend, number):
    field = {"e2b": "cpuCount", "daytona": "cpu"}[liar.name]
    text = liar.boxes(liar.box("a", **{field: "HERE"})).decode().replace('"HERE"', number)
    liar.page = lambda _: text.encode()
    with pytest.raises(ConsoleError):
        await backend.list()


@pytest.mark.parametrize("number", ["NaN", "1e999", DIGITS, "[" * 100_000 + "]" * 100_000], ids=lambda one: one[:4])
async def test_no_raw_answer_is_a_crash(liar, backend, number):
    liar.one = json.dumps(liar.box("a", unknown="HERE")).replace('"HERE"', number).encode()
    with pytest.raises(ConsoleError):
        json.dumps(await backend.raw(ref(liar, "a")))


@pytest.mark.parametrize("id_", ODD_IDS, ids=lambda one: repr(one[:9]))
async def test_no_id_is_another_place_or_a_header(liar, backend, permit, id_):
    """Each call is an answer or an error of the console's, and asks for nothing but the sandbox."""
    liar.page = lambda _: liar.boxes(liar.box(id_), liar.box(id_, name="again"))
    liar.one = json.dumps(liar.box(id_)).encode()
    try:
        rows = await backend.list()
    except ConsoleError:
        rows = []
    assert len(rows) <= 1
    liar.asked.clear()
    for request in (
        backend.inspect, backend.raw,
        lambda found: run(backend, permit, found),
    ):  # fmt: skip
        try:
            await request(ref(liar, id_))
        except ConsoleError:
            continue
    whole = [one.partition("?")[0] for one in liar.asked]
    assert not [one for one in whole if ".." in one.split("/") or one.startswith(("//", "/etc"))], whole
    assert all(one.count("/") <= 4 for one in whole), whole


async def run(backend: Any, permit: Any, found: SandboxRef) -> None:
    process = await backend.exec(await permit("exec"), Exec(found, ("true",)), [])
    async with asyncio.timeout(20):
        await process.wait()


@pytest.mark.parametrize(
    "token", ["a\r\nX-Evil: 1", "a\nb", "\x00", "ä\u2028", "x" * 1_000_000], ids=lambda one: repr(one[:5])
)
async def test_no_token_is_a_header_of_another_name(liar, backend, permit, token):
    if liar.name != "e2b":
        pytest.skip("Daytona has no token of its own for a sandbox")
    liar.one = json.dumps(liar.box("a", envdAccessToken=token)).encode()
    with pytest.raises(ConsoleError):
        await run(backend, permit, ref(liar, "a"))


async def test_one_sandbox_in_place_of_another_is_an_error(liar, backend):
    """Or somebody would look at one, and act on the other."""
    liar.one = json.dumps(liar.box("b")).encode()
    with pytest.raises(ConsoleError, match="another sandbox"):
        await backend.inspect(ref(liar, "a"))


async def test_a_million_sandboxes_are_not_kept(liar, backend):
    def page(at: int) -> bytes:
        found = [liar.box(f"{at}-{number}") for number in range(50_000)]
        if liar.name == "e2b":
            return json.dumps(found).encode()
        return json.dumps({"items": found, "nextCursor": str(at)}).encode()

    made = [page(at) for at in range(1, 21)]
    liar.endless, liar.page = True, lambda at: made[at % 20]
    before = resident_mib()
    with pytest.raises(ConsoleError, match=r"larger than|does not end"):
        await backend.list()
    assert len(liar.asked) <= 3
    assert resident_mib() - before < 128
