"""The console itself in a real Chromium, on a real sandbox: seen, acted on, on record, and closed to another origin."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.browser.serving import Served, eventually, served
from tests.browser.test_chromium import clipboard, page, rows, sees
from tests.support.require import requires

__all__ = ["page"]

pytestmark = [requires("chromium"), requires("bubblewrap")]

CONSOLE = [sys.executable, "-m", "sandbox_console"]


def cli(home: Path, *words: str) -> str:
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}
    done = subprocess.run([*CONSOLE, *words], capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.toml").write_text(
        "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
    )
    cli(
        folder,
        "create",
        "seen-in-a-browser",
        "--image",
        "host",
        "--",
        "sh",
        "-c",
        "echo hello from inside; exec sleep 1000",
    )
    yield folder
    cli(folder, "rm", "--force", *(json.loads(line)["name"] for line in cli(folder, "ls", "--json").splitlines()))


@pytest.fixture
def server(home: Path) -> Iterator[Served]:
    with served(CONSOLE, {"SANDBOX_CONSOLE_HOME": str(home)}) as found:
        yield found


def states(home: Path) -> dict[str, str]:
    return {one["name"]: one["status"] for one in map(json.loads, cli(home, "ls", "--json").splitlines())}


async def test_a_sandbox_is_seen_stopped_and_on_record_as_the_browsers(page, server: Served, home: Path) -> None:
    await page.goto(server.link)
    await sees(page, "seen-in-a-browser")
    await sees(page, "hello from inside")
    await page.keyboard.press("x")
    await sees(page, "Cancel")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await sees(page, "exited")
    assert eventually(lambda: states(home) == {"seen-in-a-browser": "exited"})

    def stopped() -> dict[str, str]:
        rows = map(json.loads, cli(home, "audit", "ls", "--json").splitlines())
        return next(row for row in rows if row["action"] == "stop")

    assert eventually(lambda: stopped()["outcome"] == "ok")  # seen is not yet recorded
    assert stopped()["actor"].startswith("browser:")


async def test_a_plain_drag_selects_and_copies_and_the_wheel_and_shift_pgup_scroll(
    page, server: Served, home: Path, tmp_path: Path
) -> None:
    cli(home, "create", "long", "--image", "host", "--", "sh", "-c", "seq 1 300 | sed s/^/row-/; exec sleep 1000")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    await page.goto(server.link)
    await sees(page, "seen-in-a-browser")
    box = await page.locator(".xterm-screen").bounding_box()
    count = len(await rows(page))

    async def drag(text: str, cells: int) -> None:
        shown = await rows(page)
        at = next(at for at, row in enumerate(shown) if text in row)
        cell, y = box["width"] / max(map(len, shown)), box["y"] + (at + 0.5) * box["height"] / count
        x = box["x"] + (shown[at].index(text) + 0.3) * cell
        await page.mouse.move(x, y)
        await page.mouse.down()
        async with asyncio.timeout(10):
            while not await page.evaluate("window.sandboxConsole.selected()"):
                await page.mouse.move(x + 3 * cell, y, steps=2)
                await asyncio.sleep(0.05)
        await page.mouse.move(x + cells * cell, y, steps=3)
        await page.mouse.up()
        await page.mouse.move(x, y + 40, steps=3)  # a mouse that only moves leaves it

    await page.keyboard.press("End")
    await sees(page, "hello from inside")
    await drag("hello from inside", 60)
    await page.keyboard.press("Control+c")
    assert await clipboard(page, server.url, tmp_path) == "hello from inside"
    await drag("seen-in-a-browser", 16)
    await page.keyboard.press("Control+c")
    assert await clipboard(page, server.url, tmp_path) == "seen-in-a-browser"

    await page.keyboard.press("Home")
    await sees(page, "row-300")
    await page.mouse.move(box["x"] + 200, box["y"] + box["height"] - 120)
    await page.mouse.wheel(0, -600)
    await goes(page, "row-300")
    await page.mouse.wheel(0, 3000)
    await sees(page, "row-300")
    await page.keyboard.press("l")
    await page.keyboard.press("Shift+PageUp")
    await goes(page, "row-300")


async def goes(page, text: str) -> None:
    async with asyncio.timeout(15):
        while any(text in row for row in await rows(page)):
            await asyncio.sleep(0.05)


async def test_a_sandbox_made_in_the_browser_outlives_its_session(page, server: Served, home: Path) -> None:
    await page.goto(server.link)
    await sees(page, "seen-in-a-browser")
    await page.keyboard.press("n")
    await sees(page, "New sandbox")
    await page.keyboard.type("made-here", delay=20)
    await page.keyboard.press("Control+s")
    await sees(page, "an image is needed")
    await page.keyboard.type("host", delay=20)
    await page.keyboard.press("Control+s")
    await sees(page, "made-here")
    assert eventually(lambda: states(home).get("made-here") == "running")
    server.stop()
    assert states(home)["made-here"] == "running"


async def test_another_origins_page_gets_nothing_of_it(page, server: Served) -> None:
    await page.goto(server.link)
    await sees(page, "seen-in-a-browser")

    async def another(_: web.Request) -> web.Response:
        return web.Response(text="<p>another origin</p>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", another)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = site._server.sockets[0].getsockname()[1]
        await page.goto(f"http://127.0.0.1:{port}/")
        fetched = await page.evaluate(
            f"fetch('{server.url}/', {{credentials: 'include'}}).then(r => 'read ' + r.status, e => 'refused')"
        )
        opened = await page.evaluate(
            f"""new Promise(done => {{
                const socket = new WebSocket('{server.url.replace("http", "ws")}/ws', ['sandbox-console.v1', 'ticket.x']);
                socket.onopen = () => done('open'); socket.onerror = () => done('refused');
            }})"""
        )
        assert (fetched, opened) == ("refused", "refused")
    finally:
        await runner.cleanup()
