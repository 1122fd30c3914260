"""The backend for OpenSandbox against a stand-in server: pages, what is asked for, states, and servers that lie."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from msgspec import structs

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.common import placed_backend
from sandbox_console.backends.opensandbox import OpenSandboxProvider, process
from sandbox_console.errors import BackendUnreachable, Conflict, InvalidSpec, NotFound, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.log import LogGap, LogQuery, LogRecord
from sandbox_console.model.sandbox import Status, spec_of
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service.effects.change_plan import How, plan_for
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
KEY = "canary-key-of-opensandbox-here"
INSPECT = "Status: running\nLabels:\n  a=b\nEnvironment:\n  A=canary-of-a-variable\nnot-indented-canary"
SPEC = SandboxSpec("web", image="python:3.11", cpus=0.5, memory_mib=256, env={"A": "1"})


def box(id_: str, state: str = "Running", message: str = "", **more):
    status = {"state": state, "message": message, "lastTransitionAt": "2026-01-01T00:01:00Z"}
    return {"id": id_, "status": status, "createdAt": "2026-01-01T00:00:00Z", "entrypoint": ["x"],
            "image": {"uri": "python:3.11"}, **more}  # fmt: skip


class Stand:
    """What a server answers. ``endless`` always says that there is a next page."""

    def __init__(self) -> None:
        self.boxes: dict[str, dict] = {}
        self.asked: list[tuple[str, dict]] = []
        self.pools: list[dict] | None = None
        self.endless, self.events, self.log, self.url = False, b"", "(no logs)", ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("OPEN-SANDBOX-API-KEY") != KEY:
            return web.json_response({"code": "INVALID_API_KEY", "message": "Check your API key"}, status=401)
        body = await request.json() if request.can_read_body else {}
        self.asked.append((f"{request.method} {request.path}", body))
        match request.method, request.path.removeprefix("/v1").removeprefix("/sandboxes").strip("/").split("/"):
            case "GET", [""]:
                return self._page(int(request.query["page"]), int(request.query["pageSize"]))
            case "POST", [""]:
                id_ = f"box-{len(self.asked)}"
                self.boxes[id_] = box(id_, metadata=body["metadata"])
                return web.json_response(self.boxes[id_], status=202)
            case "GET", [id_, "diagnostics", "inspect" | "events"] if id_ in self.boxes:
                return web.Response(text=INSPECT)
            case "POST", [id_, "renew-expiration"] if id_ in self.boxes:
                self.boxes[id_]["expiresAt"] = body["expiresAt"]
                return web.json_response(body)
            case "GET", ["pools"] if self.pools is not None:
                return web.json_response({"items": self.pools})
            case "GET", ["pools"]:
                return web.json_response({"code": "X", "message": "only on kubernetes"}, status=501)
            case "GET", [id_] if id_ in self.boxes:
                return web.json_response(self.boxes[id_])
            case "DELETE", [id_] if id_ in self.boxes:
                del self.boxes[id_]
                return web.Response(status=204)
            case "POST", [id_, "pause" | "resume"]:
                return web.json_response({"code": "NOT_RUNNING", "message": "not in that state"}, status=409)
            case "GET", [id_, "diagnostics", "logs"]:
                return web.Response(text=self.log)
            case "POST", [id_, "proxy", "44772", "command"]:
                return web.Response(body=self.events, content_type="text/event-stream")
        return web.json_response({"code": "NOT_FOUND", "message": "Sandbox not found."}, status=404)

    def _page(self, page: int, size: int) -> web.Response:
        every = list(self.boxes.values())
        more = self.endless or len(every) > page * size
        items = every[:size] if self.endless else every[(page - 1) * size : page * size]
        return web.json_response({"items": items, "pagination": {"page": page, "hasNextPage": more}})


@asynccontextmanager
async def running(stand: Stand):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stand.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stand.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    try:
        yield stand
    finally:
        await runner.cleanup()


@pytest.fixture
async def stand():
    async with running(Stand()) as one:
        yield one


def backend_of(stand, folder, **more):
    async def read(_: str) -> str:
        return KEY

    table = {"url": stand.url, "key": "KEY", **more}
    [backend] = OpenSandboxProvider.backends(BackendSettings(folder, {"servers": {"lab": table}}, key=read))
    return backend


@pytest.fixture
async def backend(stand, tmp_path):
    made = backend_of(stand, tmp_path / "state")
    yield made
    await made.close()


async def create(backend, permit, spec=SPEC):
    return await backend.create(await permit("create"), spec, (), lambda _: None)


async def test_2000_sandboxes_come_by_pages(stand, backend):
    stand.boxes = {f"box-{number}": box(f"box-{number}") for number in range(2000)}
    assert len({one.ref for one in await backend.list()}) == 2000
    assert len(stand.asked) == 10


async def test_a_list_that_never_ends_is_an_error(stand, backend):
    stand.boxes, stand.endless = {"a": box("a")}, True
    with pytest.raises(BackendUnreachable, match="does not end"):
        await backend.list()
    assert len(stand.asked) == 2


async def test_each_state_has_the_consoles_word(stand, backend):
    states = {
        "Running": Status.RUNNING, "Paused": Status.PAUSED, "Pending": Status.STARTING, "Terminated": Status.EXITED,
        "Failed": Status.FAILED, "Stopping": Status.STOPPING, "Odd": Status.UNKNOWN,
    }  # fmt: skip
    stand.boxes = {state: box(state, state) for state in states}
    stand.boxes["code"] = box("code", "Failed", "Sandbox container exited with code 3.")
    found = {one.name: one for one in await backend.list()}
    assert {state: found[state].status for state in states} == states
    assert (found["code"].status, found["code"].exit.code) == (Status.EXITED, 3)
    facts = {fact.field: fact.value for fact in found["Running"].effective}
    assert (facts["cpus"], facts["egress"], found["Running"].image) == ("unknown", "unknown", "python:3.11")


@pytest.mark.parametrize("no_network", [False, True])
async def test_a_life_is_what_the_server_is_asked_for(stand, tmp_path, permit, no_network):
    backend = backend_of(stand, tmp_path / "s", no_network=no_network)
    ref = await create(backend, permit)
    assert (await backend.inspect(ref)).status is Status.CREATED
    assert not stand.boxes
    await backend.start(await permit("start"), ref, ())
    [asked] = [body for call, body in stand.asked if call == "POST /v1/sandboxes"]
    policy = {} if no_network else {"networkPolicy": {"defaultAction": "deny", "egress": []}}
    assert asked == policy | {
        "image": {"uri": "python:3.11"}, "entrypoint": ["tail", "-f", "/dev/null"], "env": {"A": "1"},
        "resourceLimits": {"cpu": "500m", "memory": "256Mi"}, "metadata": {"name": "web"},
    }  # fmt: skip
    found = await backend.inspect(ref)
    assert (found.status, found.spec, found.name) == (Status.RUNNING, SPEC, "web")
    with pytest.raises(Conflict):
        await backend.pause(await permit("pause"), ref)
    stand.boxes.clear()
    assert (await backend.inspect(ref)).status is Status.LOST
    await backend.remove(await permit("remove"), ref, False)
    with pytest.raises(NotFound):
        await backend.inspect(ref)
    await backend.close()


async def test_what_the_api_does_not_take_is_refused(backend, permit):
    for change in ({"workdir": "/x"}, {"image": ""}, {"name": "-"}):
        with pytest.raises(InvalidSpec) as caught:
            await create(backend, permit, SandboxSpec(**({"name": "web", "image": "x"} | change)))
        assert list(caught.value.problems) == [*change]
    with pytest.raises(Unsupported):
        await create(backend, permit, SandboxSpec("web", image="x", egress=("example.com",)))


async def run(backend, permit, ref):
    running = await backend.exec(await permit("exec"), Exec(ref, ("x",)), ())
    return [one async for one in running.output()], await running.wait()


async def test_events_come_with_and_without_the_prefix(stand, backend, permit):
    stand.boxes["a"] = box("a")
    [row] = await backend.list()
    stand.events = (
        b'{"type":"init","text":"1"}\n\ndata: {"type":"stdout","text":"one"}\n\nevent: x\nid: 3\n: comment\n\n'
        b'{"type":"ping","text":"pong"}\n\n{"type":"error","error":{"ename":"E","evalue":"137","traceback":["killed"]}}\n\n'
    )
    out, end = await run(backend, permit, row.ref)
    assert [data for _, data in out] == [b"one\n"]
    assert (end.code, end.signal, end.reason) == (137, 9, "killed")


@pytest.mark.parametrize("events", [b"no json\n\n", b"[]\n\n", b"x" * 100_000], ids=["text", "list", "endless"])
async def test_events_that_lie_are_an_error(stand, backend, permit, monkeypatch, events):
    monkeypatch.setattr(process, "MOST_BYTES", 50_000)
    stand.boxes["a"], stand.events = box("a"), events
    [row] = await backend.list()
    with pytest.raises(BackendUnreachable, match="event"):
        await run(backend, permit, row.ref)


async def test_a_connection_that_ends_early_is_no_success(stand, backend, permit):
    stand.boxes["a"], stand.events = box("a"), b'{"type":"init","text":"1"}\n\n'
    [row] = await backend.list()
    _, end = await run(backend, permit, row.ref)
    assert end.code == 137


async def test_following_a_log_gives_each_line_once_and_tells_a_gap(stand, backend, monkeypatch):
    stand.boxes["a"] = box("a")
    [row] = await backend.list()
    stand.log = "2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02Z two\n"
    first = [item async for batch in backend.logs(row.ref, LogQuery(tail=1)) for item in batch]
    assert [(one.at_ns, one.data) for one in first] == [(1767225602 * 10**9, b"two\n")]
    batches = backend.logs(row.ref, LogQuery(follow=True))
    assert len(await anext(batches)) == 2
    stand.log += "2026-01-01T00:00:03Z three\n"
    async with asyncio.timeout(10):
        assert [one.data for one in await anext(batches)] == [b"three\n"]
        stand.log = "2026-01-01T00:00:09Z later\n"
        gap, line = await anext(batches)
    assert isinstance(gap, LogGap)
    assert isinstance(line, LogRecord)
    await batches.aclose()


def in_time(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def test_a_life_is_asked_for_and_renewed_from_when_it_began(stand, backend, permit):
    spec = structs.replace(SPEC, max_duration_s=600.0)
    ref = await create(backend, permit, spec)
    await backend.start(await permit("start"), ref, ())
    [asked] = [body for call, body in stand.asked if call == "POST /v1/sandboxes"]
    assert asked["timeout"] == 600
    [one] = stand.boxes.values()
    one |= {"createdAt": in_time(-60), "expiresAt": in_time(540)}
    longer = structs.replace(spec, max_duration_s=7200.0)
    assert await backend.out_of_bounds(ref, longer) == {}
    await backend.update(await permit("update"), ref, longer)
    left = datetime.fromisoformat(one["expiresAt"]) - datetime.now(UTC)
    assert 7100 < left.total_seconds() < 7150
    found = await backend.inspect(ref)
    assert found.spec.max_duration_s == 7200
    assert {fact.field: fact.value for fact in found.effective}["expires"] == one["expiresAt"]


@pytest.mark.parametrize(("expires", "life_s", "why"), [(None, 600.0, "forever"), (540, 61.0, "longer than that")])
async def test_a_life_that_cannot_be_renewed_says_why(stand, backend, permit, expires, life_s, why):
    stand.boxes["a"] = box("a") | {"createdAt": in_time(-62)} | ({"expiresAt": in_time(expires)} if expires else {})
    [row] = await backend.list()
    new = structs.replace(spec_of(row), max_duration_s=life_s)
    assert why in (await backend.out_of_bounds(row.ref, new))["max_duration_s"]
    with pytest.raises(Unsupported, match=why):
        await backend.update(await permit("update"), row.ref, new)
    assert not [call for call, _ in stand.asked if "renew" in call]


async def test_a_sandbox_of_others_is_renewed_too(stand, backend, permit):
    stand.boxes["a"] = box("a") | {"createdAt": in_time(-60), "expiresAt": in_time(10)}
    [row] = await backend.list()
    new = structs.replace(spec_of(row), max_duration_s=3600.0)
    plan = plan_for(row, new, backend.capabilities(), {})
    assert plan.how is How.LIVE
    await backend.update(await permit("update"), row.ref, new)
    assert datetime.fromisoformat(stand.boxes["a"]["expiresAt"]) > datetime.now(UTC) + timedelta(minutes=50)


async def test_one_whose_life_was_over_is_not_lost(stand, backend, permit, monkeypatch):
    ref = await create(backend, permit, structs.replace(SPEC, max_duration_s=60.0))
    await backend.start(await permit("start"), ref, ())
    stand.boxes.clear()
    assert (await backend.inspect(ref)).status is Status.LOST
    later = time.time() + 61
    monkeypatch.setattr(placed_backend.time, "time", lambda: later)
    found = await backend.inspect(ref)
    assert (found.status, found.exit.reason) == (Status.EXITED, "max_duration_s ran out")


async def test_a_life_below_a_minute_is_refused(backend, permit):
    with pytest.raises(InvalidSpec, match="60 s"):
        await create(backend, permit, structs.replace(SPEC, max_duration_s=59.0))


async def test_diagnostics_come_without_variables(stand, backend):
    stand.boxes["a"] = box("a")
    [row] = await backend.list()
    told = await backend.raw(row.ref)
    assert told["diagnostics"]["inspect"] == ["Status: running", "Labels:", "  a=b"]
    assert "canary" not in str(told["diagnostics"])


async def test_pools_are_listed_and_sandboxes_made_from_them(stand, tmp_path, permit):
    backend = backend_of(stand, tmp_path / "s", no_network=True)
    assert list(await backend.images()) == [], "a server without pools has none"
    stand.pools = [
        {"name": "warm", "capacitySpec": {"bufferMax": 2, "bufferMin": 1, "poolMax": 9, "poolMin": 0},
         "status": {"total": 3, "allocated": 1, "available": 2, "revision": "x"}, "createdAt": "2026-01-01T00:00:00Z"},
        {"name": "new", "capacitySpec": {}},
    ]  # fmt: skip
    first, second = await backend.images()
    assert (first.names, first.needed) == (("pool:warm",), "2 of 3 ready, at most 9")
    assert second.needed == "its sandboxes are not known yet"
    ref = await create(backend, permit, structs.replace(SPEC, image="pool:warm"))
    await backend.start(await permit("start"), ref, ())
    [asked] = [body for call, body in stand.asked if call == "POST /v1/sandboxes"]
    assert asked["extensions"] == {"poolRef": "warm"}
    assert not asked.keys() & {"image", "networkPolicy"}
    await backend.close()


async def test_a_pool_needs_a_server_without_a_network(backend, permit):
    with pytest.raises(InvalidSpec, match="no_network"):
        await create(backend, permit, structs.replace(SPEC, image="pool:warm"))
