"""Every row of the table "What is refused" of docs/browser.md on one server, and how many attempts were refused.

The last line printed (``pytest -s``) says how many were tried and how many refused. What needs a Chromium, another
user or a minute has tests of its own: test_attacks.py, test_refusals.py, test_team.py.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from tests.browser.serving import Client, Served, client, closed, raw, served_with_token

from sandbox_console.web import websocket_messages

DOCS = Path(__file__).parents[2] / "docs" / "browser.md"
BODY = {"columns": 80, "rows": 24}
Attempts = AsyncIterator[tuple[str, object, object]]
"""What was tried, what came back, and what a refusal is."""


async def test_the_whole_list(tmp_path: Path) -> None:
    tried: dict[str, list[tuple[str, bool]]] = {row: [] for row in table()}
    with served_with_token(raw("echo"), tmp_path, resume_s=0.1, max_sessions=2) as server:
        for begins, attempts in ATTACKS.items():
            [row] = [row for row in tried if row.startswith(begins)]
            async with client(server, reuse=False) as it, client(server, reuse=False) as other:
                assert await it.log_in() == 200
                tried[row] += [(what, got == wanted) async for what, got, wanted in attempts(server, it, other)]
    elsewhere = {row for row in tried if row.startswith(ELSEWHERE)}
    assert {row for row, attempts in tried.items() if not attempts} == elsewhere
    refused = [(row, what, so) for row, attempts in tried.items() for what, so in attempts]
    print(f"\nrefusals: tried {len(refused)}, refused {sum(so for _, _, so in refused)}")  # noqa: T201 - asked for
    assert [(row, what) for row, what, so in refused if not so] == []


def table() -> list[str]:
    """The requests of the table."""
    part = DOCS.read_text().partition("## What is refused\n\n")[2].partition("\n\n")[0]
    return [re.split(r" \| ", line.removeprefix("| "))[0] for line in part.splitlines()[2:]]


async def hosts(server: Served, it: Client, other: Client) -> Attempts:
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1:{server.port}.evil.example", "", "[::2]:80"):
        for path in ("/", "/ws", "/static/style.css", "/login"):
            answer = await it.session.get(server.url + path, headers={"Host": host})
            yield f"{path} for {host!r}", answer.status, 421


async def origins(server: Served, it: Client, other: Client) -> Attempts:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{server.port}"):
        for path in ("/", "/static/console.js", "/download/x"):
            answer = await it.session.get(server.url + path, headers={"Origin": origin})
            yield f"{path} of {origin}", answer.status, 403
        yield f"/ticket of {origin}", (await it.post("/ticket", BODY, Origin=origin)).status, 403
        yield f"/ws of {origin}", await shaken(it, await it.ticket(), Origin=origin), 403
    yield "/ticket of none", (await it.post("/ticket", BODY, leave_out="Origin")).status, 403
    yield "/ws of none", await shaken(it, await it.ticket(), Origin=""), 403


async def sites(server: Served, it: Client, other: Client) -> Attempts:
    for site in ("cross-site", "same-site", "made-up"):
        for path in ("/", "/static/console.js"):
            answer = await it.session.get(server.url + path, headers={"Sec-Fetch-Site": site})
            yield f"{path} from {site}", answer.status, 403


async def guesses(server: Served, it: Client, other: Client) -> Attempts:
    for count, wanted in enumerate([403] * 5 + [429] * 2):
        yield f"guess {count}", await other.log_in(f"guess {count}"), wanted


async def addresses(server: Served, it: Client, other: Client) -> Attempts:
    for target in ("http://evil.example/", "http://evil.example:80/static/style.css"):
        request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
            link.sendall(request.encode())
            yield target, link.recv(4096).split()[1], b"421"


async def tickets(server: Served, it: Client, other: Client) -> Attempts:
    cookie = next(iter(it.session.cookie_jar))
    stolen = {"Cookie": f"{cookie.key}={cookie.value}"}
    yield "without both", (await other.post("/ticket", BODY)).status, 401
    for key in ("", "login", cookie.value):
        answer = await other.post("/ticket", BODY, X_Sandbox_Console=key, **stolen)
        yield f"with the cookie and the key {key[:5]!r}", answer.status, 401
    yield "with the key alone", (await other.post("/ticket", BODY, X_Sandbox_Console=it.key)).status, 401


async def sockets(server: Served, it: Client, other: Client) -> Attempts:
    assert await other.log_in() == 200
    ticket = await it.ticket()
    async with it.socket(ticket):
        pass
    for what, used in (("used", ticket), ("none", ""), ("made up", "x"), ("another's", await other.ticket())):
        yield what, await shaken(it, used), 403


async def ninth(server: Served, it: Client, other: Client) -> Attempts:
    assert await other.log_in() == 200
    async with it.socket(await free_place(it)) as one, it.socket(await free_place(it)) as two:
        for link in (one, two):
            await link.receive()
        yield "a third of two", (await other.post("/ticket", BODY)).status, 503


async def messages(server: Served, it: Client, other: Client) -> Attempts:
    for text in ("", "{}", "[]", '["stdin", 1]', '["quit"]', '["role", "admin"]', "[" * 30_000):
        yield text[:20], await answered(it, text), 1008
    yield "too long", await answered(it, json.dumps(["stdin", "x" * websocket_messages.MOST_BYTES])), 1009
    yield "too many", await answered(it, *['["focus"]'] * (3 * websocket_messages.BURST)), 1008


async def frames(server: Served, it: Client, other: Client) -> Attempts:
    async with it.socket(await free_place(it)) as link:
        await link.receive()
        stream = link._conn.transport
        stream.write(b"\x81\x09" + b'["focus"]')
        yield "a text without a mask", await closed(link) in (1000, 1002, 1006, 1008, None), True


ATTACKS = {
    "any request whose `Host`": hosts,
    "any request whose `Origin`": origins,
    "`Sec-Fetch-Site`": sites,
    "an address of another host": addresses,
    "a websocket ticket": tickets,
    "a websocket without a ticket": sockets,
    "a ninth session": ninth,
    "a message of more": messages,
    "a frame without": frames,
    "a wrong or used token": guesses,
}
ELSEWHERE = ("a connection that has not sent", "a session that is shown")
"""They need time: test_refusals.py has them."""


async def shaken(it: Client, ticket: str, **headers: str) -> int:
    """The status that a websocket is answered with."""
    try:
        async with it.socket(ticket, **headers):
            return 101
    except aiohttp.WSServerHandshakeError as error:
        return error.status


async def free_place(it: Client) -> str:
    """A ticket, once the app of a socket that was closed has ended."""
    async with asyncio.timeout(60):
        while (answer := await it.post("/ticket", BODY)).status == 503:
            await asyncio.sleep(0.05)
    return str((await answer.json())["ticket"])


async def answered(it: Client, *texts: str) -> int | None:
    """The code with which a socket is closed after some messages."""
    async with it.socket(await free_place(it)) as link:
        for text in texts:
            await link.send_str(text)
        return await closed(link)
