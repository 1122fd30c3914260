"""What reaches the API's port and is no caller: slow, broken, huge and many requests."""

from __future__ import annotations

import asyncio
import io
import socket
import time
from unittest import mock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict
from tests.servers.serving import SECRET, Server, grant
from yarl import URL

from sandbox_console.servers.api import handlers
from sandbox_console.servers.api.schemas import ShellBody


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /v1/run_shell HTTP/1.1\r\nHost: x\r\nX: ",
        b"",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/run_shell HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"A: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"A: a\r\n" * 5_000 + b"\r\n",
        b"POST /v1/run_shell HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request_is_hung_up_on(server: Server, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.settimeout(30)
        answer = b""
        try:
            peer.sendall(sent)
            while data := peer.recv(65536):
                answer += data
        except ConnectionError:
            answer += b""
        assert not answer or answer.split()[1][:1] == b"4", answer


async def test_bodies_that_are_too_large_are_refused(server: Server, call, token: str) -> None:
    head = {"Authorization": f"Bearer {token}", "X-A2A-Grant": grant(), "Content-Type": "application/json"}
    huge = io.BytesIO(b'{"bucket": "agent-one", "script": "' + b"x" * (5 << 20) + b'"}')
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url + "/v1/run_shell", data=huge, headers=head) as answer,
    ):
        assert answer.status == 413
    async with call("POST", "/v1/run_shell", None, **{"Content-Type": "text/plain"}) as answer:
        assert answer.status == 415


@pytest.mark.parametrize("name", ["Authorization", "X-A2A-Grant"])
async def test_of_two_headers_none_is_taken(server: Server, token: str, name: str) -> None:
    """A proxy before the server may have looked at the other one."""
    given = [("Authorization", f"Bearer {token}"), ("X-A2A-Grant", grant()), (name, "Bearer another")]
    body = {"bucket": "agent-one", "script": "true"}
    async with aiohttp.ClientSession() as session, session.post(
        server.url + "/v1/run_shell", json=body, headers=CIMultiDict(given)
    ) as answer:  # fmt: skip
        assert answer.status == 401


async def test_a_flood_of_calls_is_held_to_a_few_and_others_are_served(call, server: Server, home, tidy) -> None:
    other = home.token(f"other-{time.monotonic_ns()}", "api")
    body = {"bucket": "agent-one", "script": "sleep 2", "timeout_seconds": 5}
    flood = [asyncio.ensure_future(call("POST", "/v1/run_shell", body)) for _ in range(40)]
    await asyncio.sleep(0.2)
    async with call("GET", "/v1/sandboxes", token=other, grant="") as answer:
        assert (answer.status, await answer.json()) == (200, [])
    found = sorted([answer.status for answer in await asyncio.gather(*flood)])
    assert found.count(200) <= 3
    assert set(found) == {200, 429}
    async with aiohttp.ClientSession() as session, session.get(server.url + "/healthz") as answer:
        assert answer.status == 200


async def test_nothing_that_is_secret_is_said(call, server: Server, token: str) -> None:
    async with call("POST", "/v1/run_shell", {"bucket": "agent-one"}, token=token + "x") as answer:
        assert token[-43:] not in await answer.text()
    from pathlib import Path

    said = Path(f"/proc/{server.process.pid}/cmdline").read_text() + "\n".join(server.lines)
    assert token[-43:] not in said
    assert SECRET not in said


async def test_a_body_that_comes_too_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "BODY_S", 0.05)
    body = aiohttp.StreamReader(mock.Mock(_reading_paused=False), 2**16, loop=asyncio.get_running_loop())
    body.feed_data(b'{"bucket": ')
    head = {"Content-Type": "application/json", "Content-Length": "4000000"}
    request = make_mocked_request("POST", "/v1/run_shell", head, payload=body)
    with pytest.raises(web.HTTPRequestTimeout):
        await handlers.read(request, ShellBody)


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fetc%2fpasswd",
        "sb-000000000000%00",
        "%1b%5b31m",
        pytest.param("a" * 4000, id="long"),
        "%ff",
        "*",
        "-f",
    ],
)
async def test_a_name_that_is_none_is_not_found(server: Server, token: str, name: str) -> None:
    head = {"Authorization": f"Bearer {token}", "X-A2A-Grant": grant()}
    where = URL(f"{server.url}/v1/sandboxes/{name}/exec", encoded=True)
    async with (
        aiohttp.ClientSession() as session,
        session.post(where, json={"cmd": "true"}, headers=head) as answer,
    ):
        assert answer.status == 404
        assert "\x1b" not in await answer.text()


@pytest.mark.parametrize(
    "sent",
    [b"[" * 100_000, b'{"a":' * 50_000, b'{"bucket": "agent-one", "script": "\\ud800"}', b"\xff\xfe", b"NaN", b""],
)
async def test_a_body_that_is_hostile_json_is_a_400(server: Server, token: str, sent: bytes) -> None:
    head = {"Authorization": f"Bearer {token}", "X-A2A-Grant": grant(), "Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url + "/v1/run_shell", data=sent, headers=head) as answer,
    ):
        assert answer.status == 400
