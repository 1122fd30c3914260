"""A real server in its own process, and a client that logs in as the page does."""

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

HERE = Path(__file__).parent
TINY = [sys.executable, str(HERE / "tiny_app.py")]
TOKEN = "a-token-for-tests-0123456789"


def raw(mode: str) -> list[str]:
    return [sys.executable, str(HERE / "raw_app.py"), mode]


@dataclass
class Served:
    process: subprocess.Popen
    url: str
    link: str
    lines: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def said(self, text: str) -> bool:
        return eventually(lambda: any(text in line for line in self.lines))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextmanager
def served(command: list[str], environment: dict[str, str] | None = None, **options) -> Iterator[Served]:
    """Serve a command until the block ends."""
    argv = [sys.executable, str(HERE / "serve_main.py"), json.dumps(options), *command]
    with serving(argv, environment or {}) as server:
        yield server


@contextmanager
def serving(argv: list[str], environment: dict[str, str], folder: Path | None = None) -> Iterator[Served]:
    """Run what serves until the block ends."""
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=os.environ | environment, cwd=folder)
    link = process.stderr.readline().strip()
    server = Served(process, re.split(r"/[#\s]", link)[0], link)
    reader = threading.Thread(target=_collect, args=(process.stderr, server.lines), daemon=True)
    reader.start()
    try:
        yield server
    finally:
        if process.poll() is None:
            server.stop()
        reader.join(5)
        process.stderr.close()


@contextmanager
def served_with_token(command: list[str], folder: Path, **options) -> Iterator[Served]:
    """Serve with TOKEN from a file, so that many logins are possible."""
    file = folder / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    with served(command, token_file=str(file), **options) as server:
        yield server


def eventually(check, seconds: float = 15.0) -> bool:
    until = time.monotonic() + seconds
    while not (done := check()) and time.monotonic() < until:
        time.sleep(0.05)
    return bool(done)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Client:
    """An aiohttp session that can say everything the page says, and leave any of it out."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url, self.key = session, url, ""

    async def post(self, path: str, body: object, *, leave_out: str = "", **headers: str) -> aiohttp.ClientResponse:
        sent = {"Origin": self.url, "X-Sandbox-Console": self.key} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        sent.pop(leave_out, None)
        return await self.session.post(self.url + path, json=body, headers=sent)

    async def log_in(self, token: str = TOKEN, **headers: str) -> int:
        answer = await self.post("/login", {"token": token}, **({"X_Sandbox_Console": "login"} | headers))
        if answer.status == 200:
            self.key = (await answer.json())["key"]
        return answer.status

    async def ticket(self, view: str | None = None) -> str:
        answer = await self.post("/ticket", {"columns": 80, "rows": 24, "view": view})
        assert answer.status == 200, await answer.text()
        return (await answer.json())["ticket"]

    def socket(self, ticket: str, **headers: str):
        sent = {"Origin": self.url} | headers
        return self.session.ws_connect(
            self.url + "/ws",
            protocols=["sandbox-console.v1", f"ticket.{ticket}"],
            headers={k: v for k, v in sent.items() if v},
            autoping=True,
        )


@asynccontextmanager
async def client(server: Served, tls: ssl.SSLContext | bool = True, *, reuse: bool = True):
    """A client. Without ``reuse`` each request has its own connection: the server closes one that idles for 5 s."""
    jar = aiohttp.CookieJar(unsafe=True)
    connector = aiohttp.TCPConnector(ssl=tls, force_close=not reuse)
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as session:
        yield Client(session, server.url)


async def read_until(socket: aiohttp.ClientWebSocketResponse, text: bytes, seconds: float = 15.0) -> bytes:
    """The bytes that the app has written, up to and with some text."""
    seen = b""
    async with asyncio.timeout(seconds):
        while text not in seen:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                seen += message.data
            elif message.type is not aiohttp.WSMsgType.TEXT:
                raise AssertionError(f"the socket closed with {socket.close_code} after {seen!r}")
    return seen


async def closed(socket: aiohttp.ClientWebSocketResponse, seconds: float = 10.0) -> int | None:
    """The code with which the server closes."""
    async with asyncio.timeout(seconds):
        while not socket.closed:
            await socket.receive()
    return socket.close_code


def _collect(stream, lines: list[str]) -> None:
    lines.extend(line.rstrip("\n") for line in stream)
