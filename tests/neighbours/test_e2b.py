"""The backend for E2B: what its rows tell, who gets which key, and what a lying API or guest can do."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from aiohttp import web
from tests.neighbours.hosted.e2b_stand_in import KEY, TEMPLATE, TOKEN, Box, E2b
from tests.neighbours.hosted.jail import Jail
from tests.neighbours.hosted.threaded import served
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.e2b import E2bProvider
from sandbox_console.errors import BackendUnreachable, ConfigError, NotFound, SecretError
from sandbox_console.model.action import Exec
from sandbox_console.model.log import LogQuery, LogRecord
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
REF = SandboxRef("e2b", "lab", "a")


class Lying(E2b):
    """Its process service answers with ``frames``, if there are any."""

    frames: bytes | None = None

    async def process(self, request: web.Request) -> web.StreamResponse:
        if self.frames is None:
            return await super().process(request)
        await request.read()
        return web.Response(body=self.frames, content_type="application/connect+json")


@pytest.fixture
def e2b():
    stand = Lying()
    stand.boxes["a"] = Box("a", {"templateID": TEMPLATE, "timeout": 600, "metadata": {"name": "web", "team": "x"}})
    with served(stand.app()) as url:
        stand.url = url
        yield stand
    stand.end()


def backend_of(stand, folder, key: str = KEY, **more):
    async def read(_: str) -> str:
        return key

    table = {"url": stand.url, "sandboxes": stand.url, "key": "KEY", **more}
    [backend] = E2bProvider.backends(BackendSettings(folder, {"servers": {"lab": table}}, key=read))
    return backend


@pytest.fixture
async def backend(e2b, tmp_path):
    made = backend_of(e2b, tmp_path / "state")
    yield made
    await made.close()


async def test_a_row_tells_what_e2b_tells(e2b, backend):
    e2b.boxes["b"] = Box("b", {"templateID": TEMPLATE, "allow_internet_access": False}, state="paused")
    rows = {one.ref.id: one for one in await backend.list()}
    first, second = rows["a"], rows["b"]
    assert (first.name, first.status, first.image, first.managed, first.maker) == (
        "web", Status.RUNNING, "base", False, "e2b"
    )  # fmt: skip
    assert (second.name, second.status) == ("b", Status.PAUSED)
    assert first.labels == {"name": "web", "team": "x"}
    facts = {one.field: one for one in first.effective}
    assert facts["expires"].value == e2b.boxes["a"].ends.isoformat()
    assert facts["expires"].note == "E2B ends it then"
    assert {name: facts[name].value for name in ("cpus", "memory_mib", "disk_mib", "template", "egress")} == {
        "cpus": "2", "memory_mib": "512", "disk_mib": "1024", "template": "base", "egress": "unknown"
    }  # fmt: skip
    shown = [{one.field: one.value for one in (await backend.inspect(rows[id_].ref)).effective} for id_ in "ab"]
    assert [one["egress"] for one in shown] == ["any host", "none"]
    raw = await backend.raw(REF)
    assert raw["sandboxID"] == "a"
    assert TOKEN not in str(raw)


async def test_two_thousand_come_by_pages(e2b, backend):
    for number in range(2000):
        e2b.boxes[f"x{number}"] = Box(f"x{number}", {"templateID": TEMPLATE})
    e2b.asked.clear()
    assert len(await backend.list()) == 2001
    assert len(e2b.asked) == 21


async def test_a_list_without_an_end_is_an_error(e2b, backend):
    e2b.page = 0  # the same page again and again
    with pytest.raises(BackendUnreachable, match="does not end"):
        await backend.list()


@requires("bubblewrap")
@requires("user")
async def test_the_key_goes_to_the_api_and_no_further(e2b, backend, permit):
    """The stand-in refuses a request to envd that has the key, or not the token."""
    e2b.boxes["a"].jail = Jail()
    assert await read_all(await backend.exec(await permit("exec"), Exec(REF, ("echo", "in")), ())) == b"in\n"


async def test_a_wrong_key_is_named_and_one_that_is_no_line_is_not_sent(e2b, tmp_path):
    stranger = backend_of(e2b, tmp_path, "another")
    health = await stranger.health()
    await stranger.close()
    assert not health.ok
    assert "refuses the key" in health.reason
    broken = backend_of(e2b, tmp_path, f"{KEY}\nX-More: 1")
    with pytest.raises(SecretError, match="cannot be sent"):
        await broken.list()
    await broken.close()


async def test_its_log_is_what_envd_noted(e2b, backend):
    for number in range(3):
        e2b.boxes["a"].note(f"Process with pid {number} started", command=f"echo {number}")
    e2b.boxes["a"].note("Streaming process event", data="printed\n")
    items = [item async for batch in backend.logs(REF, LogQuery(tail=2)) for item in batch]
    assert [item.data for item in items if isinstance(item, LogRecord)] == [
        b"Process with pid 2 started: echo 2\n", b"printed\n"
    ]  # fmt: skip
    following = backend.logs(REF, LogQuery(follow=True, tail=0))
    assert await anext(following) == []
    e2b.boxes["a"].note("late")
    async with asyncio.timeout(60):
        seen = [item.data async for batch in following for item in batch if (e2b.boxes.pop("a", None), item)]
    assert seen == [b"late\n"]


async def test_stats_come_from_its_measures(backend):
    async for one in backend.stats(REF, 1.0):
        assert (one.cpu_percent, one.memory_bytes, one.memory_limit) == (25.0, 50 << 20, 512 << 20)
        break


def frame(message: object, flags: int = 0) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


STARTED = frame({"event": {"start": {"pid": 7}}})


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        (b"\0\xff\xff\xff\xff", "cannot be read, or is larger than 8 MiB"),
        (frame(b"\x1f\x8b", 1), "cannot be read"),
        (frame(b"{"), "cannot be read"),
        (frame(b"[" * 100_000), "cannot be read"),
        (frame({"event": {"data": {"stdout": "no base64!"}}}), "output cannot be read"),
        (frame({"event": {"end": {"exitCode": 1 << 70}}}), "cannot be read"),
        (frame({"error": {"code": "unavailable", "message": "busy"}}, 2), "overloaded or not ready: busy"),
        (frame({"error": {"code": "invalid_argument", "message": "cwd '/x' does not exist"}}, 2), "does not exist"),
    ],
    ids=["size", "gzip", "json", "deep", "base64", "code", "busy", "cwd"],
)
async def test_what_a_guest_claims_is_an_error_that_names_it(e2b, backend, permit, frames, says):
    e2b.frames = frames
    process = await backend.exec(await permit("exec"), Exec(REF, ("true",)), ())
    with pytest.raises(Exception, match=says) as caught:
        await read_all(process)
    assert hasattr(caught.value, "code"), "an error of the console's"
    await process.kill()


async def test_a_stream_that_breaks_off_is_no_success(e2b, backend, permit):
    e2b.frames = STARTED + frame({"event": {"data": {"stdout": base64.b64encode(b"half").decode()}}})
    process = await backend.exec(await permit("exec"), Exec(REF, ("true",)), ())
    assert await read_all(process) == b"half"
    end = await process.wait()
    assert (end.code, end.reason) == (137, "the connection to the sandbox ended")


async def read_all(process) -> bytes:
    async with asyncio.timeout(60):
        return b"".join([data async for _, data in process.output()])


async def test_an_id_is_one_part_of_a_path(backend):
    for id_ in ("..", "a/../b", "?x"):
        with pytest.raises(NotFound):
            await backend.inspect(SandboxRef("e2b", "lab", id_))


async def test_a_spec_that_a_template_decides_is_refused(backend):
    problems = backend.validate(SandboxSpec("web", command=("x",), workdir="/x"))
    assert set(problems) == {"image", "command", "workdir"}


@pytest.mark.parametrize(
    ("table", "inside"),
    [
        ({}, "https://sandbox.e2b.app"),
        ({"url": "https://api.example.com"}, "https://sandbox.example.com"),
        ({"url": "https://e2b.example.com/api"}, "https://e2b.example.com/api"),
        ({"sandboxes": "https://inside.example.com"}, "https://inside.example.com"),
    ],
)
def test_where_the_sandboxes_are(table, inside, tmp_path):
    [backend] = E2bProvider.backends(BackendSettings(tmp_path, {"servers": {"lab": {"key": "KEY", **table}}}))
    assert backend._account.inside == inside


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"sandboxes": "http://inside.example.com", "key": "KEY"}, "sandboxes: the key would be sent"),
        ({"lifetime_s": 1}, "lifetime_s"),
    ],
)
def test_a_table_that_cannot_be_meant(table, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        E2bProvider.backends(BackendSettings(tmp_path, {"servers": {"lab": table}}))
