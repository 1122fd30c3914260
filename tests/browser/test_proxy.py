"""Behind a real nginx with TLS and a prefix, by an address and by a socket file; and the options that say so."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.browser.serving import (
    TINY,
    TOKEN,
    Client,
    Served,
    client,
    eventually,
    raw,
    read_until,
    served_with_token,
    serving,
)
from tests.browser.test_chromium import log_in, rows, sees
from tests.support.chromium import connected
from tests.support.require import requires

from sandbox_console.errors import UsageError
from sandbox_console.web import ServeOptions

NGINX = """
daemon off; pid {folder}/pid; error_log stderr; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {cert}; ssl_certificate_key {key};
    location /console {{
      proxy_pass {upstream};
      proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";
    }}
  }}
}}
"""
NAME = "console.localhost"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextmanager
def nginx(folder: Path, pem: tuple[Path, Path], port: int, upstream: str) -> Iterator[str]:
    """A proxy until the block ends; its public address."""
    config = folder / "nginx.conf"
    user = "user root; " if folder.owner() == "root" else ""
    words = {"folder": folder, "port": port, "cert": pem[0], "key": pem[1], "upstream": upstream}
    config.write_text(user + NGINX.format(**words))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    process = subprocess.Popen([program, "-e", "stderr", "-p", folder, "-c", config], stderr=subprocess.PIPE)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, process.stderr.read()
            asyncio.run(asyncio.sleep(0.05))
        yield f"https://{NAME}:{port}/console"
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


@pytest.fixture(params=["address", "socket"])
def proxied(request: pytest.FixtureRequest, tmp_path: Path, pem: tuple[Path, Path]) -> Iterator[tuple[Served, str]]:
    """A server behind nginx, and its public address."""
    port = free_port()
    by: dict[str, object] = {"trust_proxy": ["127.0.0.1"]}
    if request.param == "socket":
        by = {"socket": str(tmp_path / "serve.sock")}
    with served_with_token(TINY, tmp_path, prefix="/console", names=[f"{NAME}:{port}"], **by) as server:
        assert server.url == f"https://{NAME}:{port}/console"
        upstream = (
            f"http://unix:{tmp_path}/serve.sock:"
            if request.param == "socket"
            else f"http://127.0.0.1:{own_port(server)}"
        )
        with nginx(tmp_path, pem, port, upstream) as url:
            yield server, url


def own_port(server: Served) -> int:
    """The port of the server's process, from the kernel's table: the link that it prints is the proxy's."""
    links = {target.removeprefix("socket:[").removesuffix("]") for target in open_files(server.process.pid)}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in links:
            return int(words[1].rpartition(":")[2], 16)
    raise AssertionError("it listens nowhere")


def open_files(pid: int) -> Iterator[str]:
    for one in Path(f"/proc/{pid}/fd").iterdir():
        yield str(one.readlink())


@requires("nginx")
@requires("chromium")
async def test_a_browser_logs_in_types_and_reloads_behind_a_proxy(proxied: tuple[Served, str], chromium: str) -> None:
    server, url = proxied
    async with connected(chromium) as browser:
        context = await browser.new_context(ignore_https_errors=True)
        page = await context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(url)  # without the last stroke
        assert page.url == url + "/"
        await log_in(page, url)
        await sees(page, "count 0")
        assert any("@127.0.0.1" in row for row in await rows(page))
        await page.keyboard.press("+")
        await sees(page, "count 1")
        await page.reload()
        await sees(page, "count 1")
        assert not [one for one in asked if not one.startswith(url)]
        (cookie,) = await context.cookies()
        assert (cookie["path"], cookie["secure"], cookie["httpOnly"]) == ("/console/", True, True)
    assert server.said("session opened")


@requires("nginx")
async def test_host_and_origin_are_those_of_the_public_name(
    proxied: tuple[Served, str], pem: tuple[Path, Path]
) -> None:
    _, url = proxied
    origin = url.removesuffix("/console")
    host = origin.removeprefix("https://")
    tls = ssl.create_default_context(cafile=str(pem[0]))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        it = Client(session, url.replace(NAME, "127.0.0.1"))
        for wrong in (origin.replace("https", "http"), "https://evil.example", f"https://{NAME}"):
            assert await it.log_in(Origin=wrong, Host=host) == 403
        for other in ("evil.example", "127.0.0.1", NAME):
            assert (await session.get(it.url + "/", headers={"Host": other})).status == 421
        assert await it.log_in(Origin=origin, Host=host) == 200


async def test_headers_of_a_proxy_are_believed_from_its_address_alone(tmp_path: Path) -> None:
    told = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
    for trusted, status in ((["192.0.2.1"], 421), (["127.0.0.1"], 200)):
        with served_with_token(raw("echo"), tmp_path, trust_proxy=trusted, names=["public.example"]) as server:
            own = f"http://127.0.0.1:{own_port(server)}"
            async with aiohttp.ClientSession() as session:
                answer = await session.get(own, headers=told | {"Host": "public.example"})
                assert answer.status == status
                assert (await session.get(own, headers={"Host": "public.example"})).status == 421
                assert (await session.get(own)).status == 200  # not through the proxy
                it = Client(session, own)
                proxied = {"X_Forwarded_Proto": "https", "X_Forwarded_For": "6.6.6.6, 203.0.113.9"}
                assert await it.log_in("wrong", Host="public.example", Origin="https://public.example", **proxied) == (
                    403 if status == 200 else 421
                )
            assert status == 421 or server.said("a wrong login token from 203.0.113.9")


async def test_a_socket_file_is_for_its_owner_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "serve.sock"
    abandoned = socket.socket(socket.AF_UNIX)
    abandoned.bind(str(path))
    abandoned.close()
    with served_with_token(raw("echo"), tmp_path, socket=str(path), names=["public.example"]) as server:
        assert server.url == "https://public.example"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session:
            for headers, status in (({"X-Forwarded-Proto": "https"}, 200), ({}, 421)):
                answer = await session.get("http://x/", headers=headers | {"Host": "public.example"})
                assert answer.status == status
        with served_with_token(raw("echo"), tmp_path, socket=str(path), names=["public.example"]) as second:
            assert second.process.wait(10) == 7
        assert path.exists()
        server.stop()
        assert not path.exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"names": ("not a host",)}, "is not a host name"),
        ({"names": ("host:99999",)}, "is not a host name"),
        ({"names": ("-x.example",)}, "is not a host name"),
        ({"names": ("http://x.example",)}, "is not a host name"),
        ({"prefix": "console"}, "not a path"),
        ({"prefix": "/a/../b"}, "not a path"),
        ({"trust_proxy": ("proxy",), "names": ("x",)}, "not an address"),
        ({"trust_proxy": ("127.0.0.1",)}, "not known"),
        ({"socket": Path("/tmp/x")}, "not known"),
        ({"socket": Path("/tmp/x"), "names": ("x",), "port": 1}, "no port"),
        ({"max_sessions": 0}, "at least 1"),
        ({"idle_s": 0.0}, "above 0"),
    ],
)
def test_options_that_do_not_hold_together_are_refused(options: dict, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        ServeOptions(**options).check()


def test_names_that_are_hosts_are_taken() -> None:
    for name in ("x", "a.example", "a.example:8443", "192.0.2.1", "192.0.2.1:80", "::1", "[::1]:443"):
        ServeOptions(names=(name,)).check()


def test_the_configuration_and_the_command_say_the_same_options(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[serve]\nprefix = "/table"\nhostname = ["t.example"]\ntrust_proxy = ["127.0.0.1"]\n'
    )
    argv = [sys.executable, "-m", "sandbox_console", "serve"]
    home = {"SANDBOX_CONSOLE_HOME": str(tmp_path)}
    with serving(argv, home) as server:
        assert server.url == "https://t.example/table"
    with serving([*argv, "--prefix", "/mine/", "--hostname", "m.example"], home) as server:
        assert server.url == "https://m.example/mine"


# --- sessions that outlive their socket


async def test_a_full_server_gives_a_session_without_a_page_for_a_new_one_and_says_so(tmp_path: Path) -> None:
    with served_with_token(raw("echo"), tmp_path, max_sessions=1) as server:
        async with client(server) as it, client(server) as other:
            await it.log_in()
            await other.log_in()
            async with it.socket(await it.ticket()) as link:
                first = (await link.receive_json())[1]
                await read_until(link, b"raw ready")
                body = {"columns": 80, "rows": 24}
                assert (await it.post("/ticket", body)).status == 503  # it is looked at
            await asyncio.sleep(1)  # no longer an end: another login still finds no place
            assert (await other.post("/ticket", body)).status == 503
            async with it.socket(await it.ticket(first)) as link:
                assert (await link.receive_json())[1] == first
            async with it.socket(await it.ticket()) as link:
                await read_until(link, b"raw ready")
            answer = await (await it.post("/ticket", body | {"view": first})).json()
            assert answer == {"gone": "a newer session took its place"}
            answer = await (await it.post("/ticket", body | {"view": "made-up"})).json()
            assert "started again" in answer["gone"]


@requires("chromium")
async def test_a_page_says_that_its_session_is_gone_before_it_begins_another(tmp_path: Path, chromium: str) -> None:
    async with connected(chromium) as browser:
        page = await (await browser.new_context()).new_page()
        with served_with_token(TINY, tmp_path) as server:
            port = server.port
            await log_in(page, server.url)
            await sees(page, "count 0")
            server.process.kill()
            server.process.wait()
        with served_with_token(TINY, tmp_path, port=port) as server:
            await log_in(page, server.url)
            await page.locator("#reason", has_text="started again since").wait_for()
            assert server.said("logged in")
            assert not [line for line in server.lines if "session opened" in line]
            await page.click("#again")
            await sees(page, "count 0")


@requires("chromium")
async def test_a_link_of_another_site_opens_the_page(tmp_path: Path, chromium: str) -> None:
    async with connected(chromium) as browser:
        page = await (await browser.new_context()).new_page()
        with served_with_token(TINY, tmp_path) as server:
            elsewhere = tmp_path / "elsewhere.html"
            elsewhere.write_text(f'<a id="link" href="{server.url}/#token={TOKEN}">console</a>')
            for _ in range(2):  # the login, then where one is logged in already
                await page.goto(elsewhere.as_uri())
                await page.click("#link")
                await sees(page, "count 0")
                elsewhere.write_text(f'<a id="link" href="{server.url}/">console</a>')


def test_open_passes_the_link_in_a_file_and_removes_it(tmp_path: Path) -> None:
    noted, browser = tmp_path / "noted", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {noted}\n')
    browser.chmod(0o755)
    argv = [sys.executable, "-m", "sandbox_console", "serve", "--open"]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(tmp_path), "BROWSER": f"{browser} %s"}) as server:
        assert eventually(lambda: noted.exists() and noted.read_text().strip())
        page = Path(noted.read_text().strip().removeprefix("file://"))
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert server.link in page.read_text()
        assert server.link.split("#token=")[1] not in noted.read_text()
        server.stop()
    assert not page.exists()
