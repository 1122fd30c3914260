"""What the server refuses, asked by a client that can say anything."""

import asyncio
import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.browser.serving import TOKEN, Served, client, closed, eventually, raw, read_until, served, served_with_token

from sandbox_console.web import websocket_messages


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served_with_token(raw("echo"), tmp_path_factory.mktemp("token"), resume_s=0.1, max_sessions=100) as server:
        yield server


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("console.localhost:{port}", 200),
        ("CONSOLE.localhost:{port}", 200),
        ("evil.example:{port}", 421),
        ("127.0.0.1", 421),
        ("127.0.0.1:{port}.evil.example", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize("path", ["/", "/login", "/ws", "/static/style.css"])
async def test_host_must_be_exact(server: Served, host: str, status: int, path: str) -> None:
    async with client(server) as it:
        answer = await it.session.get(server.url + path, headers={"Host": host.format(port=server.port)})
        assert answer.status == (403 if path == "/ws" and status == 200 else status)


def test_a_second_host_header_is_refused(server: Served) -> None:
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nHost: evil.example\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as link:
        link.sendall(head.encode())
        assert link.recv(4096).split()[1] in {b"400", b"421"}


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}", ""]
)
@pytest.mark.parametrize("path", ["/", "/static/console.js", "/download/x"])
async def test_another_origin_is_refused_on_every_page(server: Served, origin: str, path: str) -> None:
    async with client(server) as it:
        answer = await it.session.get(server.url + path, headers={"Origin": origin.format(port=server.port)})
        assert answer.status == 403
        assert not [name for name in answer.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_request_from_another_site_is_refused(server: Served, site: str) -> None:
    async with client(server) as it:
        answer = await it.session.get(server.url, headers={"Sec-Fetch-Site": site})
        assert answer.status == 403


async def test_every_answer_has_the_security_headers(server: Served) -> None:
    async with client(server) as it:
        for path, status in (("/", 200), ("/static/console.js", 200), ("/static/", 404), ("/nothing", 404)):
            answer = await it.session.get(server.url + path)
            assert answer.status == status
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"
            assert "aiohttp" not in answer.headers["Server"].lower()


@pytest.mark.parametrize("name", ["..%2fserver.py", "vendor", "vendor/", "%2e%2e/__init__.py", "login.html", ""])
async def test_only_the_files_of_the_table_are_served(server: Served, name: str) -> None:
    async with client(server) as it:
        assert (await it.session.get(f"{server.url}/static/{name}")).status == 404


async def test_login_needs_origin_header_and_the_token(tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        async with client(server) as it:
            assert (
                await it.post("/login", {"token": TOKEN}, leave_out="Origin", X_Sandbox_Console="login")
            ).status == 403
            assert (await it.post("/login", {"token": TOKEN})).status == 403
            assert await it.log_in("wrong") == 403
            assert (await it.post("/ticket", {"columns": 80, "rows": 24})).status == 401
            assert await it.log_in() == 200
            cookie = next(iter(it.session.cookie_jar))
            assert cookie["httponly"]
            assert cookie["samesite"] == "Strict"
            assert cookie.key.startswith("sandbox_console_")
            assert TOKEN not in cookie.value


async def test_after_five_wrong_tokens_in_a_minute_only_the_right_one_opens(tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        async with client(server) as it:
            assert [await it.log_in(f"guess {n}") for n in range(7)] == [403] * 5 + [429] * 2
            assert await it.log_in() == 200
        assert server.said("a wrong login token from 127.0.0.1")


async def test_a_printed_token_works_once_and_the_next_is_printed() -> None:
    with served(raw("echo")) as server:
        token = server.link.split("#token=")[1]
        async with client(server) as it, client(server) as second:
            assert await it.log_in(token) == 200
            assert await second.log_in(token) == 403
            assert server.said("for another browser")
            fresh = next(line for line in server.lines if "for another browser" in line).split("#token=")[1]
            assert await second.log_in(fresh) == 200


async def test_a_ticket_is_for_one_socket_of_one_login(server: Served) -> None:
    async with client(server) as it, client(server) as other:
        assert await it.log_in() == await other.log_in() == 200
        ticket = await it.ticket()
        async with it.socket(ticket) as link:
            assert link.protocol == websocket_messages.PROTOCOL
            await read_until(link, b"raw ready")
        for replay in (ticket, "", "made-up", await other.ticket()):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await it.socket(replay)


@pytest.mark.parametrize("origin", ["", "http://evil.example", "null"])
async def test_a_socket_needs_our_origin(server: Served, origin: str) -> None:
    async with client(server) as it:
        await it.log_in()
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await it.socket(await it.ticket(), Origin=origin)


async def test_a_socket_needs_the_cookie(server: Served) -> None:
    async with client(server) as it, client(server) as stranger:
        await it.log_in()
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await stranger.socket(await it.ticket())


async def test_a_stolen_cookie_alone_gets_no_ticket(server: Served) -> None:
    async with client(server) as it, client(server) as thief:
        await it.log_in()
        cookie = next(iter(it.session.cookie_jar))
        stolen = {"Cookie": f"{cookie.key}={cookie.value}"}
        for key in ("", "login", cookie.value):
            answer = await thief.post("/ticket", {"columns": 80, "rows": 24}, X_Sandbox_Console=key, **stolen)
            assert answer.status == 401


@pytest.mark.parametrize(
    "message",
    ["", "not json", "{}", "[]", '["stdin", 1]', '["stdin"]', '["resize", {"width": 0, "height": 5}]', '["quit"]',
     '["resize", {"width": true, "height": 5}]', '["stdin", "\\ud800"]', "[" * 30000, '["ping", "' + "x" * 65 + '"]'],
)  # fmt: skip
async def test_a_malformed_message_closes_with_1008(server: Served, message: str) -> None:
    async with client(server) as it:
        await it.log_in()
        async with it.socket(await it.ticket()) as link:
            await link.send_str(message)
            assert await closed(link) == 1008


async def test_binary_and_large_messages_close_the_socket(server: Served) -> None:
    async with client(server) as it:
        await it.log_in()
        async with it.socket(await it.ticket()) as link:
            await link.send_bytes(b"x")
            assert await closed(link) == 1008
        async with it.socket(await it.ticket()) as link:
            await link.send_str(json.dumps(["stdin", "x" * websocket_messages.MOST_BYTES]))
            assert await closed(link) == 1009


async def test_a_flood_of_messages_closes_the_socket(server: Served) -> None:
    async with client(server) as it:
        await it.log_in()
        async with it.socket(await it.ticket()) as link:
            for _ in range(websocket_messages.BURST * 3):
                await link.send_str('["focus"]')
            assert await closed(link) == 1008


async def test_no_more_sessions_than_allowed(tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path, max_sessions=2, resume_s=0.2) as server:
        async with client(server) as it:
            await it.log_in()
            links = [await it.socket(await it.ticket()) for _ in range(2)]
            for link in links:
                await read_until(link, b"raw ready")
            body = {"columns": 80, "rows": 24}
            assert (await it.post("/ticket", body)).status == 503
            await links[0].close()
            async with asyncio.timeout(10):
                while (await it.post("/ticket", body)).status == 503:
                    await asyncio.sleep(0.1)
            await links[1].close()


@pytest.fixture
def secured(pem: tuple[Path, Path]) -> Iterator[Served]:
    with served(raw("echo"), cert=str(pem[0]), key=str(pem[1])) as found:
        yield found


def test_a_slow_header_an_idle_connection_and_a_silent_handshake_are_hung_up(server: Served, secured: Served) -> None:
    started = time.monotonic()
    ports = [server.port, server.port, server.port, secured.port]
    links = [socket.create_connection(("127.0.0.1", port), timeout=9) for port in ports]
    links[0].sendall(b"GET / HTTP/1.1\r\nHost: ")
    links[1].sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\nGET / HT".encode())
    for link in links:
        while link.recv(65536):
            pass
        link.close()
    assert time.monotonic() - started < 8


def test_no_more_than_64_connections(server: Served) -> None:
    links = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(80)]
    try:
        for link in links[:16]:  # the oldest make room
            with contextlib.suppress(ConnectionResetError):
                assert link.recv(1) == b""
        assert not select.select(links[16:], [], [], 0)[0]
    finally:
        for link in links:
            link.close()


async def test_an_idle_session_ends(tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path, idle_s=0.8) as server:
        async with client(server) as it:
            await it.log_in()
            async with it.socket(await it.ticket()) as link:
                await read_until(link, b"raw ready")
                for _ in range(3):
                    await link.send_str('["ping", "1"]')  # a page that is only open is idle
                assert await closed(link) == 4002
        assert server.said("nothing was typed")


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"host": "0.0.0.0"}, 2, "no TLS"),
        ({"host": "192.0.2.1"}, 2, "no TLS"),
        ({"host": "0.0.0.0", "insecure_no_tls": True}, 2, "every address"),
        ({"port": 70000}, 2, "not between"),
        ({"key": "/nowhere"}, 2, "without its certificate"),
        ({"cert": "/nowhere"}, 1, "cannot be used"),
        ({"token_file": "/nowhere"}, 2, "cannot be read"),
    ],
)  # fmt: skip
def test_options_that_would_expose_it_are_refused(options: dict, code: int, text: str) -> None:
    with served(raw("echo"), **options) as server:
        assert server.process.wait(10) == code
        assert text in server.link


def test_a_token_that_others_can_read_is_refused(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    with served(raw("echo"), token_file=str(file)) as server:
        assert server.process.wait(10) == 2
        assert "can be read by others" in server.link
        assert TOKEN not in server.link


def test_a_port_that_is_taken_is_a_conflict(server: Served) -> None:
    with served(raw("echo"), port=server.port) as second:
        assert second.process.wait(10) == 7
        assert str(server.port) in second.link


def test_without_tls_it_says_so() -> None:
    with served(raw("echo"), host="0.0.0.0", insecure_no_tls=True, names=["box.example"]) as server:
        assert "no TLS" in server.link
        assert eventually(lambda: server.lines)
        assert server.lines[0].startswith("http://box.example:")
