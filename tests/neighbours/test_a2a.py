"""The backend for a2a runtimes, against ``serve --api`` in this process and a stand-in platform."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from sandbox_console.backends.a2a import A2aProvider
from sandbox_console.backends.base import BackendSettings
from sandbox_console.errors import BackendUnreachable, ConfigError, Conflict, InvalidSpec, NotFound, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
KEY, GRANT = "canary-key-of-the-runtime", "canary-grant-of-the-agent"
SPEC = SandboxSpec("web", image="python:3.11-slim", memory_mib=256, cpus=1.5, labels={"team": "x"})


class Platform:
    """What a platform answers. ``refuse`` is a status that every call gets."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.asked: list[tuple[str, dict]] = []
        self.refuse, self.url = 0, ""

    async def answer(self, request: web.Request) -> web.Response:
        sent = request.headers.get("Authorization"), request.headers.get("X-A2A-Grant")
        if sent != (f"Bearer {KEY}", GRANT):
            return web.json_response({"detail": "a grant is needed"}, status=401)
        if self.refuse:
            return web.json_response({"detail": "16 sandboxes are the most"}, status=self.refuse)
        body = await request.json() if request.can_read_body else {}
        self.asked.append((f"{request.method} {request.path}", body))
        match request.method, request.path.removeprefix("/v1/sandboxes").strip("/").split("/"):
            case "GET", _:
                return web.json_response(self.names)
            case "POST", [""]:
                self.names.append(f"sb-{len(self.asked):012x}")
                return web.json_response({"name": self.names[-1], "image": body["image"], "bucket": body["bucket"]})
            case "POST", [name, "exec"] if name in self.names:
                return web.json_response({"stdout": "one\n", "stderr": "two", "exit_code": 3, "files": []})
            case "DELETE", [name]:
                self.names = [one for one in self.names if one != name]
                return web.Response(status=204)
        return web.json_response({"detail": "no sandbox has that name"}, status=404)


@asynccontextmanager
async def running(platform: Platform):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", platform.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    platform.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    try:
        yield platform
    finally:
        await runner.cleanup()


@pytest.fixture
async def platform():
    async with running(Platform()) as one:
        yield one


def backend_of(platform, folder, keys=None, **more):
    async def read(name: str) -> str:
        return (keys or {"KEY": KEY, "GRANT": GRANT})[name]

    table = {"url": platform.url, "key": "KEY", "grant": "GRANT", "no_network": True, **more}
    [backend] = A2aProvider.backends(BackendSettings(folder, {"servers": {"lab": table}}, key=read))
    return backend


@pytest.fixture
async def backend(platform, tmp_path):
    made = backend_of(platform, tmp_path / "state")
    yield made
    await made.close()


async def create(backend, permit, spec=SPEC):
    return await backend.create(await permit("create"), spec, (), lambda _: None)


async def test_what_others_made_is_unknown_and_not_empty(platform, backend, permit):
    platform.names = ["sb-of-somebody", "../odd/name"]
    rows = await backend.list()
    assert [(one.name, one.status, one.managed) for one in rows] == [
        (name, Status.UNKNOWN, False) for name in platform.names
    ]
    assert {fact.value for fact in rows[0].effective} == {"unknown"}
    assert {"image", "cpus", "memory_mib", "egress"} <= {fact.field for fact in rows[0].effective}
    assert "/" not in rows[1].ref.id
    process = await backend.exec(await permit("exec"), Exec(rows[0].ref, ("ls", "-l"), timeout_s=5.0), ())
    assert [one async for one in process.output()] == [(Stream.STDOUT, b"one\n"), (Stream.STDERR, b"two")]
    assert (await process.wait()).code == 3
    assert platform.asked[-1][1] == {"cmd": "ls", "args": ["-l"], "timeout_seconds": 5.0}
    with pytest.raises(Conflict, match="may be running"):
        await backend.remove(await permit("remove"), rows[0].ref, False)
    await backend.remove(await permit("remove"), rows[0].ref, True)
    assert platform.names == ["../odd/name"]


async def test_a_life_is_what_the_runtime_is_asked_for(platform, backend, permit):
    ref = await create(backend, permit)
    assert (await backend.inspect(ref)).status is Status.CREATED
    assert not platform.names
    await backend.start(await permit("start"), ref, ())
    asked = {"bucket": "agent-console", "name": "web", "image": SPEC.image, "memory_mib": 256, "cpus": 1.5,
             "labels": {"team": "x"}}  # fmt: skip
    assert ("POST /v1/sandboxes", asked) in platform.asked
    found = await backend.inspect(ref)
    assert (found.status, found.spec, found.name) == (Status.RUNNING, SPEC, "web")
    assert [fact.value for fact in found.effective] == platform.names
    platform.names.clear()
    assert (await backend.inspect(ref)).status is Status.LOST
    await backend.remove(await permit("remove"), ref, False)
    with pytest.raises(NotFound):
        await backend.inspect(ref)


async def test_what_the_interface_does_not_carry_is_refused_by_field(backend, platform, permit, tmp_path):
    for change in ({"command": ("sleep", "1")}, {"env": {"A": "1"}}, {"workdir": "/x"}, {"image": ""}):
        [field] = change
        with pytest.raises(InvalidSpec) as caught:
            await create(backend, permit, SandboxSpec(**({"name": "web", "image": "x"} | change)))
        assert list(caught.value.problems) == [field]
    other = backend_of(platform, tmp_path, no_network=False)
    with pytest.raises(Unsupported, match="no_network = true"):
        await create(other, permit)
    await other.close()


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [(429, BackendUnreachable, "16 sandboxes"), (400, InvalidSpec, "16 sandboxes"), (409, Conflict, "16 sandboxes"),
     (404, NotFound, "16 sandboxes"), (403, BackendUnreachable, "refuses the key")],
)  # fmt: skip
async def test_each_refusal_has_its_error(platform, backend, status, kind, says):
    platform.refuse = status
    with pytest.raises(kind, match=says) as caught:
        await backend.list()
    assert KEY not in caught.value.message + caught.value.hint


async def test_a_key_that_was_renewed_is_read_again(platform, tmp_path):
    keys = {"KEY": "the-key-of-yesterday", "GRANT": GRANT}
    backend = backend_of(platform, tmp_path, keys)
    assert not (await backend.health()).ok
    keys["KEY"] = KEY
    assert (await backend.health()).ok
    await backend.close()


async def test_2000_names_come_in_one_answer(platform, backend):
    platform.names = [f"sb-{number:012x}" for number in range(2000)]
    assert len(await backend.list()) == 2000


async def test_an_unknown_one_is_not_found(backend, permit):
    ref = SandboxRef("a2a", "lab", "no-such")
    for call in (
        lambda permit: backend.start(permit, ref, ()),
        lambda permit: backend.stop(permit, ref, 1),
        lambda permit: backend.exec(permit, Exec(ref, ("true",)), ()),
    ):
        with pytest.raises(NotFound):
            await call(await permit("x"))


def test_a_bucket_that_no_runtime_takes_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="bucket 'mine'"):
        A2aProvider.backends(BackendSettings(tmp_path, {"servers": {"x": {"url": "https://x", "bucket": "mine"}}}))


async def test_ending_a_command_drops_the_connection(platform, backend, permit, monkeypatch):
    platform.names = ["sb-1"]
    gone = asyncio.Event()

    async def never(*_):
        try:
            await asyncio.sleep(3600)
        finally:
            gone.set()

    monkeypatch.setattr(backend._client, "run", never)
    [row] = await backend.list()
    process = await backend.exec(await permit("exec"), Exec(row.ref, ("sleep", "9")), ())
    await asyncio.sleep(0)
    await process.kill()
    await process.kill()
    assert (await process.wait()).code == 137
    assert [one async for one in process.output()] == []
    assert gone.is_set()
