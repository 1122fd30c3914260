"""The HTTP API and its backends: one that does not answer is no empty list, and callers share the lists."""

from __future__ import annotations

import asyncio

import pytest
from tests.servers.test_api_inside import BASE, api, home
from tests.support.engine import IMAGE, private_engine
from tests.support.require import missing

from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.servers import refusal_delay
from sandbox_console.servers.api import leftovers
from sandbox_console.servers.api.leftovers import RUN
from sandbox_console.servers.refusal_delay import RefusalDelay
from sandbox_console.testing.fake_backend import FakeBackend

__all__ = ["home"]

BUCKET = {"bucket": "agent-one"}


async def made(client) -> str:
    async with client.post("/v1/sandboxes", json=BUCKET) as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["name"]


async def told(client, method: str, path: str, body: object = None) -> tuple[int, dict]:
    async with client.request(method, path, json=body) as answer:
        return answer.status, await answer.json() if answer.status != 204 else {}


@pytest.mark.parametrize("backend", ['backend = "fake"\n', 'backend = "fake/local"\n', ""])
async def test_a_backend_that_does_not_answer_is_a_503_with_its_name(home, backend):
    fake = FakeBackend()
    async with api(home, BASE.format(more="") + backend, backends=[fake]) as client:
        name = await made(client)
        await fake.die("the fake engine was stopped")
        status, problem = await told(client, "GET", "/v1/sandboxes")
        assert problem["detail"] == "fake does not answer: the fake engine was stopped"
        for method, path, body in (
            ("GET", "/v1/sandboxes", None),
            ("DELETE", f"/v1/sandboxes/{name}", None),
            ("DELETE", "/v1/sandboxes/sb-000000000000", None),
            ("POST", f"/v1/sandboxes/{name}/exec", {"cmd": "true"}),
            ("POST", "/v1/sandboxes/sb-000000000000/exec", {"cmd": "true"}),
            ("POST", "/v1/sandboxes", BUCKET),
            ("POST", "/v1/run_shell", BUCKET | {"script": "true"}),
        ):
            status, problem = await told(client, method, path, body)
            assert (status, problem["code"]) == (503, "unreachable"), (method, path, problem)
            assert "fake" in problem["detail"], (method, path, problem)
        assert (await told(client, "GET", "/healthz"))[0] == 200
        await fake.revive()
        assert await told(client, "GET", "/v1/sandboxes") == (200, [name])
        assert (await told(client, "DELETE", f"/v1/sandboxes/{name}"))[0] == 204
        assert not fake.sandboxes


async def test_a_server_that_was_restarted_knows_of_sandboxes_on_a_dead_backend(home):
    fake, other = FakeBackend(), FakeBackend(name="other")
    text = BASE.format(more="")
    async with api(home, text, backends=[fake, other]) as client:
        name = await made(client)
    await fake.die("the engine was stopped")
    (home / "tokens.json").unlink()
    async with api(home, text + "max_sandboxes = 1\n", backends=[fake, other]) as client:
        assert (await told(client, "GET", "/v1/sandboxes"))[0] == 503
        assert (await told(client, "DELETE", f"/v1/sandboxes/{name}"))[0] == 503
        status, problem = await told(client, "POST", "/v1/sandboxes", BUCKET)
        assert (status, problem["code"]) == (429, "denied"), problem


async def test_a_dead_backend_without_sandboxes_of_callers_is_no_hindrance(home):
    fake, other = FakeBackend(dead=True), FakeBackend(name="other")
    async with api(home, BASE.format(more=""), backends=[fake, other]) as client:
        name = await made(client)
        assert await told(client, "GET", "/v1/sandboxes") == (200, [name])
        assert (await told(client, "DELETE", f"/v1/sandboxes/{name}"))[0] == 204
        assert (await told(client, "DELETE", f"/v1/sandboxes/{name}"))[0] == 204


async def test_a_docker_engine_that_is_stopped_is_a_503_until_it_is_back(home, monkeypatch):
    if reason := missing("docker"):
        pytest.skip(reason)
    with private_engine() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.url)
        text = BASE.format(more="").replace('"host"', f'"{IMAGE}"') + 'backend = "docker"\n'
        async with api(home, text, only_backend="docker") as client:
            name = await made(client)
            await asyncio.to_thread(engine.halt)
            for method, path in (
                ("GET", "/v1/sandboxes"),
                ("DELETE", f"/v1/sandboxes/{name}"),
                ("DELETE", "/v1/sandboxes/sb-000000000000"),
            ):
                status, problem = await told(client, method, path)
                assert (status, problem["code"]) == (503, "unreachable"), (method, path, problem)
                assert "docker" in problem["detail"].lower(), (method, path, problem)
            await asyncio.to_thread(engine.start)
            assert await told(client, "GET", "/v1/sandboxes") == (200, [name])
            assert (await told(client, "DELETE", f"/v1/sandboxes/{name}"))[0] == 204


async def test_what_a_killed_server_left_is_removed_once_its_backend_answers(home, monkeypatch):
    monkeypatch.setattr(leftovers, "AGAIN_S", 0.01)
    labels = {RUN: "0123456789abcdef", "a2a.token": "agents"}
    left = Sandbox(SandboxRef("fake", "local", "1"), "sb-0123456789ab", Status.RUNNING, managed=True, labels=labels)
    kept = Sandbox(SandboxRef("fake", "local", "2"), "kept", Status.RUNNING, managed=True)
    fake = FakeBackend([left, kept], dead=True)
    async with api(home, BASE.format(more=""), backends=[fake]):
        assert len(fake.sandboxes) == 2
        await fake.revive()
        async with asyncio.timeout(30):
            while len(fake.sandboxes) > 1:
                await asyncio.sleep(0.01)
        assert [one.name for one in fake.sandboxes.values()] == ["kept"]


class Counted(FakeBackend):
    """Its list waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def list(self):
        self.lists += 1
        found = await super().list()
        self.asked.set()
        await self.gate.wait()
        return found


async def test_callers_share_one_query_that_is_never_older_than_their_call(home):
    fake = Counted()
    async with api(home, BASE.format(more="") + 'backend = "fake"\nmax_calls = 100\n', backends=[fake]) as client:
        before = fake.lists
        fake.gate.clear()
        fake.asked.clear()
        early = asyncio.ensure_future(told(client, "GET", "/v1/sandboxes"))
        await fake.asked.wait()  # the query has seen no sandbox yet
        late = [asyncio.ensure_future(told(client, "GET", "/v1/sandboxes")) for _ in range(40)]
        creating = asyncio.ensure_future(made(client))
        gone = asyncio.ensure_future(told(client, "GET", "/v1/sandboxes"))
        while len(asyncio.all_tasks()) < 80:  # all of them are in the server
            await asyncio.sleep(0)
        gone.cancel()
        fake.gate.set()
        assert await early == (200, [])
        name = await creating
        assert {status for status, _ in await asyncio.gather(*late)} == {200}
        assert fake.lists - before <= 4
        assert await told(client, "GET", "/v1/sandboxes") == (200, [name])


async def test_a_create_that_ends_during_a_query_counts_towards_the_caps(home):
    fake = Counted()
    text = BASE.format(more="") + 'backend = "fake"\nmax_per_bucket = 2\nmax_calls = 100\n'
    async with api(home, text, backends=[fake]) as client:
        found = await asyncio.gather(*(told(client, "POST", "/v1/sandboxes", BUCKET) for _ in range(6)))
        assert sorted(status for status, _ in found) == [200, 200, 429, 429, 429, 429]


async def test_refusals_of_one_caller_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[asyncio.Event] = []

    async def sleep(seconds: float) -> None:
        if seconds == refusal_delay.APART_S:
            turns.append(asyncio.Event())
            await turns[-1].wait()

    async def settle() -> None:
        for _ in range(10):
            await asyncio.tasks.sleep(0)

    monkeypatch.setattr(refusal_delay.asyncio, "sleep", sleep)
    waits = RefusalDelay()
    flood = [asyncio.ensure_future(waits.refused("one")) for _ in range(5)]
    await settle()
    assert len(turns) == 1, "one turn of a caller at a time"
    other = asyncio.ensure_future(waits.refused("other"))
    await settle()
    assert len(turns) == 2, "another caller does not wait for it"
    turns[1].set()
    await other
    flood[1].cancel()
    for number, at in enumerate((0, 2, 3, 4)):
        turns[-1 if number else 0].set()
        await flood[at]
        await settle()
    assert flood[1].cancelled()
    assert not waits._turns, "nothing is kept of callers who wait no more"
    assert not waits._waiting
