"""MCP over HTTP as a process: by the package's own client, and by what is not let in."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import time

import aiohttp
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.browser.serving import eventually
from tests.servers.serving import Home, serving
from tests.servers.test_a2a import running
from tests.servers.test_mcp import ALL, call, refused
from tests.support.require import missing

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    made = Home(tmp_path_factory.mktemp("mcp") / "home")
    made.configure(ALL)
    yield made
    if names := made.names():
        made.run("rm", "--force", *names)


@pytest.fixture(scope="module")
def token(home):
    return home.token("alice", "mcp")


@pytest.fixture(scope="module")
def server(home, token):
    with serving(home, "--mcp", "--no-page", what="mcp") as running:
        yield running


def client(url: str, token: str) -> Client:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    return Client(streamable_http_client(url, http_client=http))


async def test_two_callers_each_under_their_own_name(server, home, token):
    bob = home.token("bob", "mcp")
    async with client(server.url, token) as alice:
        await call(alice, "create", template="job", name="hers")
        assert (await call(alice, "exec", name="hers", command=["echo", "x"]))["stdout"] == "x\n"
        async with client(server.url, bob) as other:
            assert "somebody else made it" in await refused(other, "remove", name="hers")
            asked = await call(other, "ask_host", name="hers", host="pypi.org")
        await call(alice, "remove", name="hers")
    rows = [json.loads(line) for line in home.run("audit", "ls", "--json", "--limit", "5").stdout.splitlines()]
    told = [(row["action"], row["actor"], row["outcome"]) for row in rows]
    assert told == [
        ("remove", "mcp:alice", "ok"),
        ("egress", "mcp:bob", "denied"),
        ("remove", "mcp:bob", "denied"),
        ("exec", "mcp:alice", "ok"),
        ("create", "mcp:alice", "ok"),
    ]
    assert asked["audit_id"]


async def test_users_have_their_role_and_see_what_has_their_label(server, home, token):
    home.run("create", "of-web", "--image", "host", "--label", "team=mcp", "--label", "area=web", "--", "sleep", "1000")
    home.run(
        "create", "of-search", "--image", "host", "--label", "team=mcp", "--label", "area=search", "--", "sleep", "1000"
    )
    texts = {}
    for name, *rights in (("ada", "--role", "operator", "-l", "area=search"), ("eve", "--role", "viewer")):
        home.run("users", "add", name, "--no-password", *rights)
        texts[name] = home.run("users", "token", name, "--scope", "mcp").stdout.strip()
    async with client(server.url, texts["ada"]) as ada, client(server.url, texts["eve"]) as eve:
        assert [one["name"] for one in (await call(ada, "list"))["sandboxes"]] == ["of-search"]
        assert {"of-search", "of-web"} <= {one["name"] for one in (await call(eve, "list"))["sandboxes"]}
        for tool, more in (("inspect", {}), ("logs", {}), ("exec", {"command": ["true"]}), ("why", {})):
            told = await refused(ada, tool, name="of-web", **more)
            assert "no sandbox that you may see" in told, told
        assert (await call(ada, "exec", name="of-search", command=["echo", "x"]))["stdout"] == "x\n"
        for tool, more in (
            ("exec", {"name": "of-search", "command": ["true"]}), ("create", {"template": "job", "name": "eves"}),
            ("write_file", {"name": "of-search", "path": "/tmp/x", "content": "x"}),
        ):  # fmt: skip
            assert "you are a viewer" in await refused(eve, tool, **more)
        await call(ada, "create", template="job", name="adas")
        assert json.loads(home.run("show", "adas", "--json").stdout)["labels"]["area"] == "search"
        home.run("users", "set", "ada", "--role", "viewer")
        assert "you are a viewer" in await refused(ada, "exec", name="of-search", command=["true"])
    rows = [json.loads(line) for line in home.run("audit", "ls", "--json", "--limit", "50").stdout.splitlines()]
    told = {(row["action"], row["actor"], row["outcome"]) for row in rows}
    assert {("exec", "mcp:eve", "denied"), ("create", "mcp:eve", "denied"), ("exec", "mcp:ada", "denied")} <= told
    assert {("exec", "mcp:ada", "ok"), ("create", "mcp:ada", "ok")} <= told
    home.run("rm", "--force", "of-web", "of-search", "adas")


async def test_who_is_let_in(server, home, token):
    good = {**HEADERS, "Authorization": f"Bearer {token}"}
    page = home.token("page", "page", "api")
    tries = [
        ({}, 200),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer x"}, 401),
        ({"Authorization": f"Bearer {page}"}, 401),
        ({"Authorization": f"Basic {token}"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 421),
    ]
    async with aiohttp.ClientSession() as session:
        for more, status in tries:
            async with session.post(server.url, json=PING, headers=good | more) as answer:
                assert answer.status == status, (more, await answer.text())
        async with session.post(server.url, data=io.BytesIO(b"x" * (3 << 20)), headers=good) as answer:
            assert answer.status == 413
        async with session.post(server.url.replace("/mcp", "/other"), json=PING, headers=good) as answer:
            assert answer.status == 404
        for method in ("GET", "DELETE", "PUT"):  # a GET would be a stream that holds one of the token's requests
            async with session.request(method, server.url, headers=good) as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, "POST")


def test_a_header_that_never_ends_is_hung_up_on(server):
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX: ")
        slow.settimeout(30)
        assert slow.recv(1) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"{", b"", b"\xff\xfe", b"\0" * 100, b"[" * 200_000, b'{"a":' * 100_000, b"9" * 100_000, b"1e999999",
        b"[" + b",".join([json.dumps(PING).encode()] * 5_000) + b"]",
        b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list", "arguments": '
        + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}}",
    ],
    ids=range(11),
)  # fmt: skip
async def test_a_body_that_is_hostile_json_is_refused_and_the_next_is_answered(server, token, sent):
    good = {**HEADERS, "Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session:
        async with session.post(server.url, data=sent, headers=good) as answer:
            assert answer.status == 400
        async with session.post(server.url, json=PING, headers=good) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("name", ["../hers", "hers%2f..%2fhers", "sandbox", "*", "%00", "bubblewrap:hers"])
async def test_a_resource_of_a_name_that_is_none_is_not_found(server, token, name):
    good = {**HEADERS, "Authorization": f"Bearer {token}"}
    ask = {"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": {"uri": f"sandbox://{name}/spec"}}
    async with aiohttp.ClientSession() as session, session.post(server.url, json=ask, headers=good) as answer:
        assert "error" in await answer.json()


async def test_a_client_that_goes_away_ends_its_command(server, token):
    mark = f"7{time.monotonic_ns() % 10**8}"
    async with client(server.url, token) as alice:
        await call(alice, "create", template="job", name="gone")
    body = {"name": "exec", "arguments": {"name": "gone", "command": ["sleep", mark], "timeout_s": 100}}
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": body}

    async def send() -> None:
        async with aiohttp.ClientSession() as session:
            headers = {**HEADERS, "Authorization": f"Bearer {token}"}
            async with session.post(server.url, json=ask, headers=headers) as answer:
                await answer.read()

    sending = asyncio.ensure_future(send())
    assert await asyncio.to_thread(eventually, lambda: running(mark), 30)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert await asyncio.to_thread(eventually, lambda: not running(mark))
