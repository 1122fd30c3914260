"""What reaches the API's port and is no caller: slow, broken, huge and many requests."""

from __future__ import annotations

import asyncio
import io
import socket
import time

import aiohttp
import pytest
from tests.servers.serving import SECRET, Server, grant


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /v1/run_shell HTTP/1.1\r\nHost: x\r\nX: ",
        b"",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/run_shell HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"A: " + b"a" * 100_000 + b"\r\n\r\n",
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
