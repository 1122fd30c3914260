"""Guests of remote servers: what their execd and their output claim reaches no other sandbox, host or file."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from tests.neighbours.test_opensandbox import KEY, Stand, backend_of, box, running
from tests.neighbours.wrong_server import wrong_server

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.common import guest_files
from sandbox_console.backends.kubernetes import commands
from sandbox_console.backends.kubernetes.objects import Meta, Pod
from sandbox_console.backends.opensandbox import OpenSandboxProvider
from sandbox_console.backends.opensandbox.pipe import PipeGuest
from sandbox_console.errors import BackendError, BackendUnreachable, ConsoleError, NotFound, SecretError
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.log import LogQuery, Stream
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
REF = SandboxRef("opensandbox", "lab", "a")


class HostileGuest(Stand):
    """A server whose only wrong part is the execd of its sandbox ``a``."""

    session, elsewhere, metrics = "s1", "", b"{}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        match request.path.removeprefix("/v1/sandboxes/a/proxy/44772").split("/"):
            case ["", "pty"]:
                return web.json_response({"session_id": self.session})
            case ["", "pty", _, "ws"] if self.elsewhere:
                raise web.HTTPFound(self.elsewhere)
            case ["", "metrics"]:
                return web.Response(body=self.metrics)
        return await super().answer(request)


@pytest.fixture
async def guest(tmp_path):
    async with running(HostileGuest()) as stand:
        stand.boxes = {"a": box("a"), "victim": box("victim")}
        yield stand


@pytest.fixture
async def backend(guest, tmp_path):
    made = backend_of(guest, tmp_path / "state")
    yield made
    await made.close()


@pytest.mark.parametrize("session", ["../../../../victim", "x/../../../../../victim", "..", "", "a?b", "a\n", "é" * 9])
async def test_a_session_that_is_a_path_leads_to_no_other_sandbox(guest, backend, permit, session):
    guest.session = session
    with pytest.raises(BackendUnreachable, match="cannot be read"):
        await backend.list_dir(REF, "/")
    with pytest.raises(BackendUnreachable, match="cannot be read"):
        await backend.shell(await permit("shell"), OpenShell(REF), ())
    assert list(guest.boxes) == ["a", "victim"]
    assert not [asked for asked, _ in guest.asked if "victim" in asked or asked.startswith("DELETE")]


async def test_a_redirect_of_a_websocket_gets_no_key(guest, backend, permit):
    async with wrong_server("bad json") as other:
        guest.elsewhere = other.url + "/stolen"
        with pytest.raises(BackendUnreachable, match="redirects to"):
            await backend.list_dir(REF, "/")
        with pytest.raises(BackendUnreachable, match="redirects to"):
            await backend.shell(await permit("shell"), OpenShell(REF), ())
        assert not other.keys


@pytest.mark.parametrize("metrics", [b'{"mem_used_mib":1e308}', b'{"cpu_count":1e308,"cpu_used_pct":1e308}', b"{"])
async def test_measures_that_cannot_be_are_an_error_of_the_server(guest, backend, metrics):
    guest.metrics = metrics
    with pytest.raises(BackendUnreachable, match="cannot be read"):
        await anext(backend.stats(REF, 1.0))


@pytest.mark.parametrize("code", ["9" * 5000, "9" * 40, "-1", "²", ""])
async def test_a_code_that_cannot_be_ends_the_command(guest, backend, permit, code):
    guest.events = b'{"type":"error","error":{"evalue":"' + code.encode() + b'","traceback":["it failed"]}}\n'
    process = await backend.exec(await permit("exec"), Exec(REF, ("x",)), ())
    async with asyncio.timeout(5):
        assert [chunk async for chunk in process.output()] == []
        end = await process.wait()
    assert (end.code, end.reason) == (None, "it failed")


@pytest.mark.parametrize(
    "time", ["2026-99-99T99:99:99Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "٢٠٢٦-٠١-٠١T٠٠:٠٠:٠٠Z"]
)
async def test_a_line_with_an_impossible_time_is_a_line(guest, backend, time):
    guest.log = f"2026-01-01T00:00:00Z first\n{time} second\n"
    records = [one async for batch in backend.logs(REF, LogQuery()) for one in batch]
    assert [(one.at_ns, one.data) for one in records] == [
        (1767225600 * 10**9, b"first\n"),
        (1767225600 * 10**9, f"{time} second\n".encode()),
    ]


@pytest.mark.parametrize("separator", ["\v", "\f", "\r", "\x1c", "\x85", "\u2028"])
async def test_a_guest_forges_no_times_of_its_lines(guest, backend, separator):
    line = f"a{separator}2030-01-01T00:00:00Z forged\n"
    guest.log = f"2026-01-01T00:00:00Z {line}"
    records = [one async for batch in backend.logs(REF, LogQuery()) for one in batch]
    assert [(one.at_ns, one.data) for one in records] == [(1767225600 * 10**9, line.encode())]


async def test_one_odd_sandbox_hides_no_others(guest, backend):
    guest.boxes["digits"] = box("digits", "Failed", "exited with code " + "9" * 5000)
    guest.boxes["early"] = box("early", createdAt="0001-01-01T00:00:00")
    guest.boxes["before"] = box("before", createdAt="0001-01-01T00:00:00+14:00")
    found = {one.name: one for one in await backend.list()}
    assert set(found) == {"a", "victim", "digits", "early", "before"}
    assert found["digits"].status is Status.EXITED
    assert (found["early"].created_at, found["before"].created_at) == (None, None)


@pytest.mark.parametrize("id_", ["", ".", ".."])
async def test_a_name_that_means_another_folder_is_not_asked_for(guest, backend, id_):
    asked = len(guest.asked)
    with pytest.raises(NotFound):
        await backend.inspect(SandboxRef("opensandbox", "lab", id_))
    assert len(guest.asked) == asked


async def test_a_key_that_no_header_can_hold_is_named_and_not_shown(guest, tmp_path):
    async def read(_: str) -> str:
        return KEY + "\nX-Other: 1"

    options = {"servers": {"lab": {"url": guest.url, "key": "KEY"}}}
    [backend] = OpenSandboxProvider.backends(BackendSettings(tmp_path / "keyed", options, key=read))
    with pytest.raises(SecretError, match="line break") as caught:
        await backend.list()
    await backend.close()
    assert KEY not in str(caught.value) + caught.value.hint


async def test_a_redirect_that_is_no_address_is_an_error_of_the_server(tmp_path):
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "http://["})

    stand = Stand()
    stand.answer = answer
    async with running(stand):
        backend = backend_of(stand, tmp_path / "state")
        with pytest.raises(ConsoleError, match="redirects to an address that cannot be read"):
            await backend.list()
        await backend.close()


class _Flood:
    """A command of a guest that prints for ever."""

    def __init__(self) -> None:
        self.printed, self.killed = 0, False

    async def output(self):
        while not self.killed:
            self.printed += 1 << 20
            yield Stream.STDOUT, b"x" * (1 << 20)
            await asyncio.sleep(0)

    async def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize("made", ["opensandbox", "kubernetes"])
async def test_a_guest_that_prints_for_ever_is_left(monkeypatch, made):
    flood = _Flood()
    monkeypatch.setattr(guest_files, "MOST_ASKED", 4 << 20)
    if made == "opensandbox":
        monkeypatch.setattr(PipeGuest, "run", lambda *_, **__: _done(flood))
        asking = PipeGuest(None, "a").ask("x")
    else:
        monkeypatch.setattr(commands, "open_exec", lambda *_, **__: _done(None))
        monkeypatch.setattr(commands, "KubernetesProcess", lambda *_: flood)
        pod = Pod(Meta("a", "b"))
        asking = commands.Guest(None, pod, "main").ask("x")
    with pytest.raises(BackendError, match="printed more than 4 MiB"):
        await asking
    assert (flood.killed, flood.printed) == (True, 5 << 20)


async def _done(value):
    return value


@pytest.mark.parametrize("seconds", ["9" * 400, "9" * 5000, "x"])
def test_a_time_that_no_file_can_have_is_an_error(seconds):
    with pytest.raises(BackendError, match="gave no status"):
        guest_files._info(["81a4", "1", "0", "0", seconds], "f", "")
