"""The pictures of the browser view: ``sandbox-console serve`` in Chromium, on the sandboxes that are running."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from playwright.async_api import Browser, HttpCredentials, Page, ViewportSize

DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
CONSOLE = (sys.executable, "-m", "sandbox_console")
LIVE = ("End",)
"""From the first row, which has failed, to one that runs."""
SETTLE_S = 4.0
"""Until what is live has come in, on a slow machine too."""


class Server:
    """A running ``serve``; each of its links opens one login."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def address(self, part: str) -> str:
        """The next address with this part in it that the server prints."""
        assert self._process.stderr is not None
        found = None
        while found is None:
            line = (await self._process.stderr.readline()).decode()
            found = re.search(rf"http\S*{part}\S*", line)
        return found.group()


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[Server]:
    """The page and the status page on free ports, until the end of the block."""
    words = ("serve", "--port", "0", "--status", "--status-port", "0")
    process = await asyncio.create_subprocess_exec(*CONSOLE, *words, stderr=asyncio.subprocess.PIPE)
    try:
        yield Server(process)
    finally:
        process.terminate()
        await process.wait()


async def status_token() -> str:
    """A token that reads the status page."""
    words = ("tokens", "add", "pictures", "--scope", "status")
    process = await asyncio.create_subprocess_exec(*CONSOLE, *words, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()


async def shoot(page: Page, out: Path, name: str, *keys: str) -> None:
    """Press keys, wait until the screen is as they leave it, and take the picture."""
    for key in keys:
        await page.keyboard.press(key)
        await asyncio.sleep(1.0)
    await asyncio.sleep(SETTLE_S)
    await page.screenshot(path=out / f"{name}.png")
    print(f"screenshots/{name}.png")


async def on_a_desktop(browser: Browser, server: Server, out: Path) -> None:
    """The login, the list, a sandbox, the form, a shell and the status page."""
    link, status = await server.address("#"), await server.address("/status")
    page = await browser.new_page(viewport=DESKTOP)
    await page.goto(link.partition("#")[0])
    await shoot(page, out, "browser-login")
    await page.goto(link)
    await asyncio.sleep(2 * SETTLE_S)
    await shoot(page, out, "browser", *LIVE)
    await shoot(page, out, "browser-detail", "Enter")
    await shoot(page, out, "browser-form", "Escape", "n")
    await shoot(page, out, "browser-shell", "Escape", "s", *"id", "Enter")
    await page.close()
    login: HttpCredentials = {"username": "pictures", "password": await status_token()}
    page = await browser.new_page(viewport=DESKTOP, http_credentials=login)
    await page.goto(status)
    await shoot(page, out, "status")
    await page.close()


async def on_a_phone(browser: Browser, server: Server, out: Path) -> None:
    """The list and a log as a phone shows them."""
    page = await browser.new_page(viewport=PHONE, has_touch=True, is_mobile=True)
    await page.goto(await server.address("#"))
    await asyncio.sleep(2 * SETTLE_S)
    await shoot(page, out, "phone", *LIVE)
    await shoot(page, out, "phone-logs", "l")
    await page.close()


async def browser_view(browser: Browser, out: Path) -> None:
    """All pictures of the browser view."""
    async with served() as server:
        await on_a_desktop(browser, server, out)
        await on_a_phone(browser, server, out)
