"""The bar above the terminal, the page's title, a dead line, and the keys for phones, in a real Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.browser.serving import client, raw, read_until, served_with_token, serving
from tests.browser.test_chromium import clipboard, log_in, page, sees
from tests.browser.test_visit_records import home
from tests.support.chromium import connected
from tests.support.require import requires

__all__ = ["home", "page"]
TINY_STATEFUL = [sys.executable, str(Path(__file__).parent / "tiny_app.py")]
CONSOLE = [sys.executable, "-m", "sandbox_console"]

pytestmark = requires("chromium")


async def shows(page, selector: str, text: str, seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while text not in await page.inner_text(selector):
            await asyncio.sleep(0.05)


async def test_the_bar_says_who_how_long_and_that_the_line_is_good(page, tmp_path) -> None:
    with served_with_token(TINY_STATEFUL, tmp_path) as server:
        await log_in(page, server.url)
        await shows(page, "#line", "connected")
        assert re.fullmatch(r"[0-9a-f]{8}@127\.0\.0\.1", await page.inner_text("#user"))
        await shows(page, "#age", "1 s")
        await page.reload()
        await shows(page, "#line", "connected")
        await shows(page, "#age", "s")
        assert await page.inner_text("#age") != "0 s"  # the session's age, not the page's
        await page.click("#user")
        await page.wait_for_selector("#sessions")


async def test_letters_grow_and_stay_so(page, tmp_path) -> None:
    with served_with_token(TINY_STATEFUL, tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "size 111x30")
        for _ in range(5):
            await page.click("#larger")
        await sees(page, "size 83x")
        await page.keyboard.press("+")
        await sees(page, "count 1")  # the terminal has the focus again
        await page.reload()
        await sees(page, "size 83x")


async def test_paste_by_the_bar_is_a_paste(page, tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "raw ready")
        await page.click("#paste")
        await page.fill("#pasted", "from a phone\x1b[201~x")
        await page.click("#pasting button[value=send]")
        await sees(page, "got from a phonex")
        await page.click("#paste")
        await page.fill("#pasted", "left out")
        await page.click("#pasting button[value='']")
        await page.wait_for_function("document.activeElement.classList.contains('xterm-helper-textarea')")
        await page.keyboard.press("z")
        await sees(page, "got z")
        assert not [row for row in await page.evaluate("window.sandboxConsole.rows()") if "left out" in row]


async def test_a_dead_line_is_seen_within_3_s_and_keys_on_it_are_dropped_and_shown(page, tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "raw ready")
        await page.keyboard.type("abc")
        await sees(page, "got c")
        server.process.send_signal(signal.SIGSTOP)  # as a dead tunnel: nothing is closed, nothing answers
        try:
            await page.keyboard.type("q")  # sent before anybody could know
            await shows(page, "#line", "no answer", 3.5)
            assert "no connection" in await page.title()
            assert "logo-fault" in await page.get_attribute("#icon", "href")
            await page.keyboard.type("xyz")
            await shows(page, "#unsent", "Not sent: ")
            await asyncio.sleep(3.0)
        finally:
            server.process.send_signal(signal.SIGCONT)
        await shows(page, "#line", "connected")
        await page.keyboard.type("!")
        await sees(page, "got !")
        seen = await page.evaluate("window.sandboxConsole.rows()")
        assert not [row for row in seen if "got q" in row or "got y" in row or "got x" in row]
        assert "no connection" not in await page.title()


async def test_the_server_drops_keys_that_were_held_up(tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        async with client(server) as it:
            await it.log_in()
            async with it.socket(await it.ticket()) as link:
                await read_until(link, b"raw ready")
                for _ in range(2):
                    await link.send_str(json.dumps(["ping", "100000"]))
                await link.send_str(json.dumps(["stdin", "late", 100000 - 3500]))
                await link.send_str(json.dumps(["stdin", "fresh", 100000 - 500]))
                seen = await read_until(link, b"got fresh")
                assert b"late" not in seen


async def test_a_copy_has_no_trailing_spaces_and_an_empty_one_leaves_the_clipboard(page, tmp_path) -> None:
    with served_with_token(TINY_STATEFUL, tmp_path) as server:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        await log_in(page, server.url)
        await sees(page, "count 0")
        box = await page.locator(".xterm-screen").bounding_box()
        await page.keyboard.down("Shift")
        await drag(page, (box["x"] + 2, box["y"] + 90), (box["x"] + 900, box["y"] + 90))
        await page.keyboard.up("Shift")
        await page.keyboard.press("Control+c")
        copied = await clipboard(page, server.url, tmp_path)
        assert copied == "size 111x30"
        await page.keyboard.down("Shift")
        await drag(page, (box["x"] + 2, box["y"] + 290), (box["x"] + 900, box["y"] + 290))
        await page.keyboard.up("Shift")
        await page.keyboard.press("Control+c")
        assert await clipboard(page, server.url, tmp_path) == copied


async def drag(page, start: tuple[float, float], end: tuple[float, float]) -> None:
    await page.mouse.move(*start)
    await page.mouse.down()
    await asyncio.sleep(0.3)
    await page.mouse.move(*end, steps=8)
    await page.mouse.up()


async def test_a_phone_has_keys_of_44_pixels_and_letters_of_14(chromium: str, tmp_path) -> None:
    with served_with_token(raw("hex"), tmp_path) as server:
        async with connected(chromium) as browser:
            for width, height in ((390, 844), (360, 640)):
                context = await browser.new_context(
                    viewport={"width": width, "height": height}, has_touch=True, is_mobile=True
                )
                phone = await context.new_page()
                await log_in(phone, server.url)
                await sees(phone, "raw ready")
                for button in await phone.locator("#touch button, #bar button:visible").all():
                    box = await button.bounding_box()
                    assert box["height"] >= 44, box
                    assert box["width"] >= 40, box
                for key, code in (("Escape", "1b"), ("ArrowUp", "1b5b41"), ("Tab", "09")):
                    await phone.tap(f"#touch [data-key={key}]")
                    await sees(phone, f"hex {code} ")
                await phone.tap("#touch [data-key=Control]")
                await phone.keyboard.type("c")
                await sees(phone, "hex 03 ")
                size = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
                assert await phone.evaluate(size) == [width, height]
                await context.close()


async def test_the_title_and_the_icon_tell_faults(page, home: Path, tmp_path) -> None:
    backends = (home / "config.toml").read_text().replace("[backends.bubblewrap]\nenabled = false\n", "")
    (home / "config.toml").write_text(backends)
    environment = {"SANDBOX_CONSOLE_HOME": str(home)}

    def cli(*words: str) -> None:
        subprocess.run([*CONSOLE, *words], env=os.environ | environment, check=True, capture_output=True, timeout=60)

    cli("create", "breaks", "--image", "host", "--", "sh", "-c", "exit 3")
    with serving([*CONSOLE, "serve", "--token-file", str(tmp_path / "token")], environment) as server:
        await log_in(page, server.url)
        await sees(page, "breaks")
        async with asyncio.timeout(20):
            while await page.title() != "1 fault · sandbox-console":
                await asyncio.sleep(0.1)
        assert "logo-fault" in await page.get_attribute("#icon", "href")
        await page.reload()
        await sees(page, "breaks")
        assert await page.title() == "1 fault · sandbox-console"
        cli("rm", "--force", "breaks")
        async with asyncio.timeout(20):
            while await page.title() != "sandbox-console":
                await asyncio.sleep(0.1)
