"""The backend for Daytona: what its rows tell, who gets the key, and what a lying toolbox can do."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from tests.neighbours.hosted.daytona_stand_in import KEY, SNAPSHOT, Box, Daytona
from tests.neighbours.hosted.jail import Jail
from tests.neighbours.hosted.threaded import served
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.daytona import DaytonaProvider
from sandbox_console.errors import BackendError, BackendUnreachable, ConfigError, ConsoleError, NotFound
from sandbox_console.model.action import Exec
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
REF = SandboxRef("daytona", "lab", "a")


class Lying(Daytona):
    """Its toolbox answers a command with ``answer``, if there is one."""

    answer: bytes | None = None

    async def execute(self, request: web.Request) -> web.Response:
        return await super().execute(request) if self.answer is None else web.Response(body=self.answer)


@pytest.fixture
def daytona():
    stand = Lying()
    stand.boxes["a"] = Box("a", {"name": "web", "snapshot": SNAPSHOT, "labels": {"team": "x"}, "env": {"TOKEN": "canary"},
                                 "ends": "2030-01-01T00:00:00+00:00"})  # fmt: skip
    with served(stand.app()) as url:
        stand.url = url
        yield stand
    stand.end()


@pytest.fixture
async def backend(daytona, tmp_path):
    async def read(_: str) -> str:
        return KEY

    table = {"url": f"{daytona.url}/api", "toolbox": f"{daytona.url}/toolbox", "key": "KEY"}
    [made] = DaytonaProvider.backends(BackendSettings(tmp_path, {"servers": {"lab": table}}, key=read))
    yield made
    await made.close()


async def test_a_row_tells_what_daytona_tells(daytona, backend):
    for id_, state in (
        ("stopped", "stopped"),
        ("bad", "error"),
        ("old", "destroyed"),
        ("new", "creating"),
        ("odd", "?"),
    ):
        daytona.boxes[id_] = Box(id_, {"networkBlockAll": True}, state=state)
    rows = {one.ref.id: one for one in await backend.list()}
    assert {id_: one.status for id_, one in rows.items()} == {
        "a": Status.RUNNING, "stopped": Status.EXITED, "bad": Status.FAILED, "new": Status.STARTING, "odd": Status.UNKNOWN
    }  # fmt: skip
    first = rows["a"]
    assert (first.name, first.image, first.managed, dict(first.labels)) == ("web", SNAPSHOT, False, {"team": "x"})
    facts = {one.field: one.value for one in first.effective}
    assert {name: facts[name] for name in ("expires", "auto_stop", "cpus", "memory_mib", "disk_mib", "egress")} == {
        "expires": "2030-01-01T00:00:00+00:00", "auto_stop": "15 min", "cpus": "1", "memory_mib": "2048",
        "disk_mib": "3072", "egress": "any host",
    }  # fmt: skip
    assert {one.field: one.value for one in rows["new"].effective}["egress"] == "none"
    assert "canary" not in str(await backend.raw(REF))
    with pytest.raises(NotFound):
        await backend.inspect(SandboxRef("daytona", "lab", "old"))


async def test_two_thousand_come_by_pages_and_a_list_without_an_end_is_an_error(daytona, backend):
    for number in range(2000):
        daytona.boxes[f"x{number}"] = Box(f"x{number}", {})
    daytona.asked.clear()
    assert len(await backend.list()) == 2001
    assert len(daytona.asked) == 11
    daytona.page = 0
    with pytest.raises(BackendUnreachable, match="does not end"):
        await backend.list()


@requires("bubblewrap")
@requires("user")
async def test_another_consoles_sandbox_is_stopped_and_started_with_its_files_kept_by_daytona(daytona, backend, permit):
    daytona.boxes["a"].jail = Jail()
    await backend.stop(await permit("stop"), REF, 1.0)
    assert (await backend.inspect(REF)).status is Status.EXITED
    await backend.start(await permit("start"), REF, ())
    assert (await backend.inspect(REF)).status is Status.RUNNING
    assert [call for call in daytona.asked if call[0] != "GET"] == [
        ("POST", "/api/sandbox/a/stop"), ("POST", "/api/sandbox/a/start")
    ]  # fmt: skip
    process = await backend.exec(await permit("exec"), Exec(REF, ("sh", "-c", "head -c 3000000 /dev/zero")), ())
    assert len(await read_all(process)) == 2 << 20
    assert "first 2 MiB" in (await process.wait()).reason


async def test_its_log_is_without_the_marks_of_streams(daytona, backend, monkeypatch):
    box = daytona.boxes["a"]
    box.log = b"\1\1\1one\n\2\2\2two\n"
    monkeypatch.setattr(daytona, "_box", lambda request: box)  # the toolbox of one without a jail
    items = [item async for batch in backend.logs(REF, LogQuery(tail=1)) for item in batch]
    assert [item.data for item in items] == [b"two\n"]
    following = backend.logs(REF, LogQuery(follow=True, tail=0))
    assert await anext(following) == []
    box.log += b"\1\1\1late\n"
    async with asyncio.timeout(60):
        [late] = await anext(following)
    assert late.data == b"late\n"
    box.state = "stopped"
    async with asyncio.timeout(60):
        assert [batch async for batch in following] == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"{", "cannot be read"),
        (b'{"exitCode": 1e400, "result": ""}', "cannot be read"),
        (b'{"exitCode": 127, "result": "sh: not found"}', "lacks sh, base64"),
        (b'{"exitCode": 0, "result": "AA=--sandbox-console--A--sandbox-console--x"}', "output cannot be read"),
    ],
    ids=["json", "code", "no shell", "base64"],
)
async def test_what_a_toolbox_claims_is_an_error_that_names_it(daytona, backend, permit, answer, says):
    daytona.answer = answer
    process = await backend.exec(await permit("exec"), Exec(REF, ("true",)), ())
    with pytest.raises(ConsoleError, match=says) as caught:
        await read_all(process)
    assert "lab" in caught.value.message


async def test_one_that_fails_to_start_is_told_with_daytonas_reason(daytona, backend, permit, monkeypatch):
    daytona.boxes["a"].state = "stopped"

    monkeypatch.setattr(Jail, "__init__", lambda self: None)
    monkeypatch.setattr(Jail, "end", lambda self: None)
    monkeypatch.setattr(Box, "told", lambda self, told=Box.told: {**told(self), "errorReason": "no runner"}
                        | ({"state": "error"} if self.state == "started" else {}))  # fmt: skip
    with pytest.raises(BackendError, match="web failed: no runner"):
        await backend.start(await permit("start"), REF, ())
    daytona.boxes["a"].jail = None


async def read_all(process) -> bytes:
    async with asyncio.timeout(60):
        return b"".join([data async for _, data in process.output()])


@pytest.mark.parametrize(
    ("table", "inside"),
    [
        ({}, "https://proxy.app.daytona.io/toolbox"),
        ({"url": "https://daytona.example.com/api/"}, "https://daytona.example.com/api/toolbox"),
        ({"toolbox": "https://inside.example.com/t"}, "https://inside.example.com/t"),
    ],
)
def test_where_the_toolboxes_are(table, inside, tmp_path):
    [backend] = DaytonaProvider.backends(BackendSettings(tmp_path, {"servers": {"lab": {"key": "KEY", **table}}}))
    assert backend._organization.inside == inside


def test_a_toolbox_gets_the_key_only_with_tls(tmp_path):
    table = {"toolbox": "http://inside.example.com", "key": "KEY"}
    with pytest.raises(ConfigError, match="toolbox: the key would be sent"):
        DaytonaProvider.backends(BackendSettings(tmp_path, {"servers": {"lab": table}}))
