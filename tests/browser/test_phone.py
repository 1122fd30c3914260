"""A phone's browser on a real sandbox, by touch alone: the list, the detail, logs, verbs with their question, a shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page
from tests.browser.serving import eventually, raw, served_with_token, serving
from tests.browser.test_chromium import log_in, rows, sees
from tests.browser.test_real_app import CONSOLE, cli, home, states
from tests.support.chromium import connected
from tests.support.require import requires

__all__ = ["home"]

pytestmark = [requires("chromium"), requires("bubblewrap")]

SIZES = ((390, 844), (360, 640))
SCREEN = """() => {
  const { left, top, width, height } = document.querySelector(".xterm-screen").getBoundingClientRect();
  return { left, top, cell: width / window.sandboxConsole.columns(), line: height / window.sandboxConsole.rows().length };
}"""


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def phone(request: pytest.FixtureRequest, chromium: str) -> AsyncIterator[Page]:
    width, height = request.param
    async with connected(chromium) as browser:
        context = await browser.new_context(viewport={"width": width, "height": height}, has_touch=True, is_mobile=True)
        yield await context.new_page()


async def tap(page: Page, text: str, then: str = "", *, line: int = 1) -> None:
    """Touch a text of the app until it shows ``then``: what is aimed at a screen that is going is dropped.

    ``line`` 1 is the line below the text, which belongs to the same row.
    """
    for _ in range(15):
        seen = await rows(page)
        if (row := at(seen, text)) is not None:
            await touch(page, row + line, seen[row].index(text))
            if not then:
                return
        elif not await shown(page, then):
            await swipe_up(page)
        if await shown(page, then):
            return
    pytest.fail(f"touching {text!r} did not show {then!r} but {[row for row in await rows(page) if row.strip()]}")


async def shown(page: Page, text: str) -> bool:
    """Whether the app shows a text within a second or so."""
    for _ in range(15):
        if text and at(await rows(page), text) is not None:
            return True
        await asyncio.sleep(0.1)
    return False


def at(shown: list[str], text: str) -> int | None:
    return next((row for row, one in enumerate(shown) if text in one), None)


async def touch(page: Page, row: int, column: int) -> None:
    screen = await page.evaluate(SCREEN)
    x, y = screen["left"] + (column + 0.5) * screen["cell"], screen["top"] + (row + 0.5) * screen["line"]
    await page.touchscreen.tap(x, y)


async def agree(page: Page, verb: str) -> None:
    """Touch the answer beside Cancel until the question is gone."""
    for _ in range(40):
        shown = await rows(page)
        row = at(shown, "Cancel")
        if row is None:
            return
        if verb in shown[row]:
            await touch(page, row + 1, shown[row].rindex(verb))
        await asyncio.sleep(0.3)
    pytest.fail(f"{verb} was not taken as an answer")


async def swipe_up(page: Page) -> None:
    """Move a finger up over a few lines, as to see what is below."""
    link = await page.context.new_cdp_session(page)
    for kind, y in (("Start", 300), *(("Move", 300 - step) for step in range(20, 121, 20))):
        await link.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": [{"x": 120, "y": y}]})
    await link.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    await link.detach()


@pytest.mark.slow
async def test_a_sandbox_is_found_read_entered_and_stopped_by_touch_alone(phone: Page, home: Path) -> None:
    cli(home, "create", "second", "--image", "host", "--", "sh", "-c", "echo of the second; exec sleep 1000")
    with serving([*CONSOLE, "serve"], {"SANDBOX_CONSOLE_HOME": str(home)}) as server:
        await phone.goto(server.link)
        await sees(phone, "seen-in-a-brow")
        assert 2 * (await phone.evaluate(SCREEN))["line"] >= 44
        for name, says in (("second", "of the second"), ("seen-in-a-brow", "hello from inside")):
            await tap(phone, name, says)
            await tap(phone, "3 Spec", "Made by")
            await tap(phone, "9 Audit", "create")
            await tap(phone, "1 Logs", says)
            await phone.tap("#touch [data-key=Escape]")
            await sees(phone, "STATE")

        await tap(phone, "Actions", "Forward port")
        await tap(phone, "Shell", "shell open")
        await phone.keyboard.type("echo $((40+2))in\n", delay=20)
        await sees(phone, "42in")
        await tap(phone, "Leave the shell", "STATE")

        for verb, state in (("Stop", "exited"), ("Start", "running")):
            await tap(phone, "Actions", "Forward port")
            await tap(phone, verb, "Cancel")
            await agree(phone, verb)
            assert eventually(lambda state=state: states(home)["seen-in-a-browser"] == state)


async def test_the_page_of_a_phone_logs_out_scrolls_and_has_room_with_its_keyboard_open(phone: Page, tmp_path) -> None:
    with served_with_token(raw("hex"), tmp_path) as server:
        await log_in(phone, server.url)
        await sees(phone, "raw ready")
        size = phone.viewport_size
        await phone.set_viewport_size({"width": size["width"], "height": size["height"] - 300})
        async with asyncio.timeout(15):
            while len(await rows(phone)) < 15 or await phone.is_visible("#bar") is (size["height"] == 640):
                await asyncio.sleep(0.05)
        await phone.set_viewport_size(size)
        await phone.wait_for_selector("#user", state="visible")
        box = await phone.locator("#user").bounding_box()
        assert box["height"] >= 44
        assert box["width"] >= 44
        await phone.tap("#user")
        await phone.wait_for_selector("#logout")
        for button in await phone.locator("#logout, td button, .button").all():
            assert (await button.bounding_box())["height"] >= 44
        assert await phone.evaluate("document.documentElement.scrollWidth") == size["width"]
        await phone.tap("#logout")
        await phone.wait_for_selector("#token")
