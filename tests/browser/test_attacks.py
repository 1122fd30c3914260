"""Attacks on the browser view that once succeeded, and on the pastes of both views: each must be refused.

The last line printed (``pytest -s``) says how many were tried and how many refused.
"""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.browser.serving import HERE, TINY, Served, client, closed, raw, read_until, served, served_with_token
from tests.browser.test_chromium import log_in, page, rows, sees
from tests.support.require import requires

from sandbox_console.model.pastes import END, QUIET_S, START, PasteGuard
from sandbox_console.web import websocket_messages
from sandbox_console.web.connections import owner_of

__all__ = ["page"]

CONSOLE = [sys.executable, "-m", "sandbox_console"]
STRANGER = 12345
Attack = Callable[[str, bool], None]


@pytest.fixture(scope="module", autouse=True)
def tally() -> Iterator[list[bool]]:
    found: list[bool] = []
    yield found
    print(f"\nattacks: tried {len(found)}, refused {sum(found)}")  # noqa: T201 - asked for


@pytest.fixture
def attack(tally: list[bool]) -> Attack:
    def noted(what: str, refused: bool) -> None:
        tally.append(refused)
        assert refused, what

    return noted


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_with_token(raw("echo"), tmp_path_factory.mktemp("token"), resume_s=0.1, max_sessions=100) as found:
        yield found


# --- 1: the other loopback address


def can_listen(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind((address, port))
            other.listen()
        except OSError:
            return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_nobody_else_can_listen_at_the_other_loopback_address(host: str, attack: Attack) -> None:
    with served(raw("echo"), host=host) as server:
        for address in ("127.0.0.1", "::1"):
            attack(f"{address} beside {host}", not can_listen(address, server.port))


async def test_where_another_holds_it_only_our_own_address_is_answered(attack: Attack) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with served(raw("echo"), port=port) as server:
            assert server.url == f"http://127.0.0.1:{port}"
            assert server.said(f"do not open localhost:{port}")
            async with client(server) as it:
                assert (await it.session.get(server.url)).status == 200
                for name in ("localhost", "console.localhost", "[::1]"):
                    answer = await it.session.get(server.url, headers={"Host": f"{name}:{port}"})
                    attack(f"Host {name}", answer.status == 421)
        with served(raw("echo"), host="localhost", port=port) as server:
            attack("--host localhost", server.process.wait(10) == 7)


@requires("bubblewrap")
@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_a_sandbox_cannot_publish_at_the_consoles_port(
    server: Served, address: str, attack: Attack, tmp_path: Path
) -> None:
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": str(tmp_path)}
    words = ["create", "thief", "--backend", "bubblewrap", "--image", "host", "-p", f"{address}:{server.port}:80"]
    argv = [*CONSOLE, *words, "--", "sleep", "60"]
    made = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if made.returncode == 0:
        subprocess.run([*CONSOLE, "rm", "--force", "thief"], env=environment, timeout=60, check=False)
    attack(f"publish {address}: {made.stderr}", made.returncode != 0 and str(server.port) in made.stderr)


# --- 2: the clipboard becomes keys

HOSTILE = "one" + END + "two\x9b201~three\x1b[20\x1b[201~1~four"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 4096])
def test_a_paste_ends_where_the_terminal_ends_it(size: int, attack: Attack) -> None:
    now = 0.0
    guard = PasteGuard(lambda: now)
    sent, got = f"a{START}{HOSTILE}{END}b", ""
    for at in range(0, len(sent), size):
        got += guard.feed(sent[at : at + size])
        now += QUIET_S / 100
    now += QUIET_S
    got += guard.release() + guard.feed("c")
    inside = re.fullmatch(rf"a.*?{re.escape(START)}([^\x1b\x9b]*){re.escape(END)}bc", got, re.DOTALL)
    attack(f"{got!r}", inside is not None)


def test_keys_pass_a_guard_at_once() -> None:
    guard = PasteGuard()
    for text in ("a", "\x1b", "[A", "\x1b[<0;1;1M", "\x1b[2", "00", "~"):
        before = guard.feed(text)
    assert before == "~" + END  # the mark came in parts that were passed on: the real paste follows
    assert guard.feed("x" + END) == ""


async def test_the_driver_takes_no_key_out_of_a_paste(tmp_path: Path, attack: Attack) -> None:
    with served_with_token(TINY, tmp_path) as server:
        async with client(server) as it:
            await it.log_in()
            async with it.socket(await it.ticket()) as link:
                await read_until(link, b"count 0")
                await link.send_json(["stdin", f"{START}a{END}+{END}"])
                await asyncio.sleep(0.5)
                await link.send_json(["stdin", "+"])
                seen = await read_until(link, b"ount ")
                attack("+ within a paste", b"ount 2" not in seen + await read_on(link))


async def read_on(link: aiohttp.ClientWebSocketResponse, seconds: float = 1.0) -> bytes:
    seen = b""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if isinstance(data := (await link.receive()).data, bytes):
                    seen += data
    except TimeoutError:
        return seen


def test_the_terminal_app_takes_no_key_out_of_a_paste(attack: Attack) -> None:
    code = "import tiny_app\nfrom sandbox_console.tui.run import _app_class\n_app_class()\ntiny_app.TinyApp().run()"
    child, master = pty.fork()
    if child == 0:
        os.chdir(HERE)
        os.execvpe(sys.executable, [sys.executable, "-c", code], os.environ | {"TERM": "xterm-256color"})
    try:
        seen = seen_at(master, b"count 0")
        os.write(master, f"{START}a{END}+{END}".encode())
        time.sleep(0.5)
        os.write(master, b"+")
        seen = seen_at(master, b"ount 1")
        time.sleep(0.5)
        os.write(master, b"q")
        seen += seen_at(master, b"")
        attack("+ within a paste", b"ount 2" not in seen)
    finally:
        os.close(master)
        os.waitpid(child, 0)


def seen_at(master: int, text: bytes, seconds: float = 20.0) -> bytes:
    """What the app writes up to some text; without one, until it ends."""
    seen, until = b"", time.monotonic() + seconds
    while not (text and text in seen) and time.monotonic() < until:
        if select.select([master], [], [], 0.1)[0]:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
    return seen


@requires("chromium")
async def test_the_page_takes_no_key_out_of_a_paste(page, tmp_path: Path, attack: Attack) -> None:
    with served_with_token(TINY, tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "count 0")
        paste = """(text) => { const data = new DataTransfer(); data.setData("text/plain", text);
            document.querySelector("textarea").dispatchEvent(
                new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })); }"""
        await page.evaluate(paste, f"a{END}+")
        await asyncio.sleep(0.5)
        await page.keyboard.press("+")
        await sees(page, "count 1")
        await asyncio.sleep(0.5)
        attack("+ within a paste", any("count 1" in row for row in await rows(page)))


# --- 3: idle connections

IDLE = """
import socket, sys, time
links = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def idle(request: pytest.FixtureRequest) -> Iterator[Callable[[int, int], None]]:
    """A program of some user that holds connections and says nothing."""
    held: list[subprocess.Popen[str]] = []

    def hold(port: int, uid: int) -> None:
        become = ["setpriv", "--reuid", str(uid), "--clear-groups"] if uid != os.geteuid() else []
        argv = [*become, "/usr/bin/python3", "-c", IDLE, str(port), "200"]
        held.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/"))
        assert held[-1].stdout is not None
        held[-1].stdout.readline()

    yield hold
    for one in held:
        one.kill()
        one.wait()


@pytest.mark.parametrize("uid", [pytest.param(STRANGER, marks=requires("user")), os.geteuid()])
async def test_idle_connections_keep_nobody_out(tmp_path: Path, uid: int, idle: Callable, attack: Attack) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        async with client(server) as it, client(server) as second:
            await it.log_in()
            async with it.socket(await it.ticket()) as link:
                await read_until(link, b"raw ready")
                idle(server.port, uid)
                attack("a new login", await second.log_in() == 200)
                async with second.socket(await second.ticket()) as other:
                    attack("a new session", bool(await read_until(other, b"raw ready")))
                await link.send_str('["stdin", "still here"]')
                attack("an open session", bool(await read_until(link, b"got still here")))


@requires("user")
def test_a_connection_is_counted_for_the_user_who_made_it() -> None:
    code = "import socket, sys; link = socket.create_connection((sys.argv[1], int(sys.argv[2]))); link.recv(1)"
    for address, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        with socket.create_server((address, 0), family=family) as listening:
            port = str(listening.getsockname()[1])
            become = ["setpriv", "--reuid", str(STRANGER), "--clear-groups"]
            other = subprocess.Popen([*become, "/usr/bin/python3", "-c", code, address, port], cwd="/")
            with listening.accept()[0] as link:
                assert owner_of(link) == f"uid {STRANGER}"
            other.wait()


def test_a_connection_by_a_socket_file_is_counted_for_its_user(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as other:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        other.connect(str(tmp_path / "s"))
        with listening.accept()[0] as link:
            assert owner_of(link) == f"uid {os.geteuid()}"


# --- 4: guesses and messages


async def test_guesses_count_wherever_they_come_from_and_lock_nobody_out(tmp_path: Path, attack: Attack) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        statuses = []
        for n in range(12):
            local = aiohttp.TCPConnector(local_addr=(f"127.0.0.{2 + n}", 0))
            async with aiohttp.ClientSession(connector=local) as session:
                headers = {"Origin": server.url, "X-Sandbox-Console": "login"}
                answer = await session.post(server.url + "/login", json={"token": f"guess {n}"}, headers=headers)
                statuses.append(answer.status)
        attack(f"guesses from twelve addresses: {statuses}", statuses == [403] * 5 + [429] * 7)
        async with client(server) as it:
            attack("the owner is locked out", await it.log_in() == 200)
        assert sum("a wrong login token" in line for line in server.lines) == 5


@pytest.mark.parametrize("kind", ["ping", "pong"])
async def test_a_flood_of_pings_closes_the_socket(server: Served, kind: str, attack: Attack) -> None:
    async with client(server) as it:
        await it.log_in()
        async with it.socket(await it.ticket()) as link:
            await read_until(link, b"raw ready")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(link, "_autoping", False)
                for _ in range(websocket_messages.BURST * 3):
                    await getattr(link, kind)(b"x")
                attack(f"a flood of {kind}s", await closed(link) == 1008)


# --- 5: versions, absolute addresses, frames without a mask, variables


def asked(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        link.sendall(request)
        answer = b""
        while data := link.recv(65536):
            answer += data
    return answer


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x00\xa5\x01",
        b"NOT HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"G\x00T / HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: %s\r\nExpect: what\r\nConnection: close\r\n\r\n",
    ],
)
def test_no_error_says_the_servers_version(server: Served, request_: bytes, attack: Attack) -> None:
    host = f"127.0.0.1:{server.port}".encode()
    answer = asked(server.port, request_.replace(b"%s", host))
    assert answer.startswith(b"HTTP/1.")
    attack(f"{answer!r}", not re.search(rb"aiohttp|python/|3\.\d+\.\d+", answer, re.IGNORECASE))
    assert not [line for line in server.lines if "aiohttp" in line or "Traceback" in line]


@pytest.mark.parametrize(
    "target",
    ["http://evil.example/", "http://127.0.0.1:1/", "https://127.0.0.1:{port}/", "http://evil@127.0.0.1:{port}/", "*"],
)
def test_an_address_of_another_host_is_refused(server: Served, target: str, attack: Attack) -> None:
    target = target.format(port=server.port)
    request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    answer = asked(server.port, request.encode())
    attack(f"{target}: {answer[:80]!r}", answer.split()[1] in {b"421", b"400", b"404"} and b"evil" not in answer)


def test_our_own_address_in_full_is_answered(server: Served) -> None:
    head = f"GET {server.url}/login HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    assert asked(server.port, head.encode()).split()[1] == b"200"


@pytest.mark.parametrize("cut", [1, 2, 100])
async def test_a_frame_without_a_mask_is_refused(server: Served, cut: int, attack: Attack) -> None:
    async with client(server) as it:
        await it.log_in()
        async with it.socket(await it.ticket()) as link:
            await read_until(link, b"raw ready")
            await link.send_str('["stdin", "masked"]')
            await read_until(link, b"got masked")
            payload = b'["stdin", "unmasked"]'
            frame = bytes([0x81, len(payload)]) + payload
            transport = link._writer.transport
            for at in range(0, len(frame), cut):
                transport.write(frame[at : at + cut])
                await asyncio.sleep(0.01)
            with pytest.raises(AssertionError, match="the socket closed"):
                await read_until(link, b"got unmasked")
            attack("a frame without a mask", link.close_code in {1002, 1006})


async def test_only_variables_that_the_app_needs_reach_it(tmp_path: Path, attack: Attack) -> None:
    strange = {
        "SANDBOX_CONSOLE_DATABASE_PASSWORD": "x",
        "SANDBOX_CONSOLE_API_TOKEN": "x",
        "SANDBOX_CONSOLE_EVIL__KEY": "x",
        "LC_SECRET": "x",
        "XDG_SESSION_COOKIE": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PYTHONSTARTUP": "/tmp/x",
        "LD_PRELOAD_": "x",
    }
    needed = {"LC_CTYPE": "C.UTF-8", "XDG_RUNTIME_DIR": "/run/user/0", "SANDBOX_CONSOLE_TUI__THEME": "textual-dark"}
    with served(raw("env"), strange | needed) as server:
        async with client(server) as it:
            await it.log_in(server.link.split("#token=")[1])
            async with it.socket(await it.ticket()) as link:
                seen = (await read_until(link, b"]\r\n")).decode()
    for name in strange:
        attack(name, f'"{name}"' not in seen)
    for name in needed:
        assert f'"{name}"' in seen
