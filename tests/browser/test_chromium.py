"""The page in a real Chromium: logging in, seeing and typing; and what another origin's page can do, which is nothing."""

import asyncio
import re
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Error
from tests.browser.serving import TINY, TOKEN, Client, client, raw, served, served_with_token
from tests.support.chromium import connected
from tests.support.require import requires

pytestmark = requires("chromium")


@pytest.fixture
async def page(chromium: str):
    async with connected(chromium) as browser:
        context = await browser.new_context(viewport={"width": 1000, "height": 640})
        yield await context.new_page()


async def rows(page) -> list[str]:
    try:
        return await page.evaluate("window.sandboxConsole?.rows() ?? []")
    except Error as error:
        if "navigation" in str(error):  # the page is on its way to the next one
            return []
        raise


async def sees(page, text: str, seconds: float = 60.0) -> None:
    until = asyncio.get_running_loop().time() + seconds
    while not any(text in row for row in await rows(page)):
        if asyncio.get_running_loop().time() > until:
            pytest.fail(f"{text!r} is not among {[row for row in await rows(page) if row.strip()]}")
        await asyncio.sleep(0.05)


async def log_in(page, url: str, token: str = TOKEN) -> None:
    await page.goto(url + "/login")
    await page.fill("#token", token)
    await page.click("button")


@pytest.mark.parametrize("command", [pytest.param(TINY, id="tiny")])
async def test_the_printed_link_opens_the_app_and_keys_reach_it(page, command: list[str]) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with served(command) as server:
        await page.goto(server.link)
        await sees(page, "count 0")
        await sees(page, "actor browser:")
        await page.keyboard.press("+")
        await sees(page, "count 1")
        token = server.link.split("#token=")[1]
        assert await page.evaluate("location.href") == server.url + "/"
        assert not [url for url in asked if not url.startswith(server.url + "/") or "?" in url or token in url]


async def test_the_terminal_fills_the_window_and_follows_its_size(page) -> None:
    with served(TINY) as server:
        await page.goto(server.link)
        await sees(page, "size 111x30")
        scroll = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        assert await page.evaluate(scroll) == [1000, 640]
        drawn = await page.evaluate(
            "(({ width, height }) => [width, height])(document.querySelector('.xterm-screen').getBoundingClientRect())"
        )
        assert 990 <= drawn[0] <= 1000
        assert 592 <= drawn[1] <= 612
        assert await page.evaluate("document.fonts.check('15px \"Roboto Mono\"')")
        await page.set_viewport_size({"width": 800, "height": 500})
        await sees(page, "size 88x23")
        for width in (390, 360, 320):  # phones: the app draws on no fewer than 40 columns
            await page.set_viewport_size({"width": width, "height": 700})
            async with asyncio.timeout(15):
                while not any(40 <= columns <= 48 for columns in await drawn_columns(page)):
                    await asyncio.sleep(0.05)
            assert await page.evaluate(scroll) == [width, 700]


async def drawn_columns(page) -> list[int]:
    return [int(size) for row in await rows(page) for size in re.findall(r"size (\d+)x", row)]


async def test_pixels_are_painted(page) -> None:
    with served(TINY) as server:
        await page.goto(server.link)
        await sees(page, "count 0")
        async with asyncio.timeout(10):
            while len(await page.screenshot()) < 6000:  # a blank page of this size is 3 kB of PNG
                await asyncio.sleep(0.1)


async def test_a_wrong_token_is_told_and_a_right_one_works(page, tmp_path) -> None:
    with served_with_token(TINY, tmp_path) as server:
        await log_in(page, server.url, "wrong")
        async with asyncio.timeout(5):
            while "not valid" not in await page.inner_text("#problem"):
                await asyncio.sleep(0.05)
        await page.fill("#token", TOKEN)
        await page.click("button")
        await sees(page, "count 0")


async def test_a_reload_and_a_lost_connection_keep_the_state(page, tmp_path) -> None:
    with served_with_token(TINY, tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "count 0")
        await page.keyboard.press("+")
        await sees(page, "count 1")
        await page.reload()
        await sees(page, "count 1")
        await page.keyboard.press("+")
        await sees(page, "count 2")
        await page.keyboard.press("q")
        async with asyncio.timeout(10):
            while "has quit" not in await page.inner_text("#reason"):
                await asyncio.sleep(0.05)


async def told(page, text: str, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while text not in await page.inner_text("#reason"):
            await asyncio.sleep(0.05)


async def test_a_server_that_falls_silent_is_told_and_found_again(page, tmp_path) -> None:
    await page.clock.install()
    with served_with_token(TINY, tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "count 0")
        await page.keyboard.press("+")
        await sees(page, "count 1")
        server.process.send_signal(signal.SIGSTOP)  # as a dead tunnel: nothing is closed, nothing answers
        try:
            for _ in range(2):
                await page.clock.fast_forward(11_000)
            await told(page, "Connection lost")
        finally:
            server.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(30):
            # until it is connected again and the server has answered, a key goes nowhere
            while not await page.is_hidden("#notice") or "connected" not in await page.inner_text("#line"):
                await page.clock.run_for(500)
                await asyncio.sleep(0.05)
        await sees(page, "count 1")
        await page.keyboard.press("+")
        await sees(page, "count 2")


async def test_open_again_while_it_tries_by_itself_opens_one(page, tmp_path) -> None:
    asked: list[str] = []
    page.on("websocket", lambda socket: asked.append(socket.url))
    with served_with_token(TINY, tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "count 0")
        await page.evaluate("for (let i = 0; i < 3; i++) document.getElementById('again').click()")
        async with asyncio.timeout(15):
            while len(asked) < 2:
                await asyncio.sleep(0.05)
        await sees(page, "count 0")
        await page.keyboard.press("+")
        await sees(page, "count 1")
        assert len(asked) == 2
        assert await page.is_hidden("#notice")


async def test_ctrl_v_pastes_and_ctrl_shift_c_copies_what_is_selected(page, tmp_path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        await page.goto(server.url + "/login")
        await page.evaluate("navigator.clipboard.writeText('from elsewhere')")
        await log_in(page, server.url)
        await sees(page, "raw ready")
        await page.keyboard.press("Control+v")
        await sees(page, "got from elsewhere")
        await page.mouse.move(2, 36)
        await page.mouse.down()
        await page.mouse.move(400, 36, steps=5)
        await page.mouse.up()
        await page.keyboard.press("Control+Shift+C")
        assert await clipboard(page, server.url, tmp_path) == "raw ready"


async def test_a_tab_closed_by_a_habit_of_the_shell_is_asked_about(page, tmp_path) -> None:
    asked: list[str] = []

    async def stay(dialog) -> None:
        asked.append(dialog.type)
        await dialog.dismiss()

    page.on("dialog", stay)
    with served_with_token(raw("echo"), tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "raw ready")
        await page.mouse.click(300, 300)
        await page.keyboard.type("git commit")
        await page.close(run_before_unload=True)  # what Ctrl+W does
        async with asyncio.timeout(15):
            while not asked:
                await asyncio.sleep(0.05)
        assert asked == ["beforeunload"]
        await page.keyboard.type("!")
        await sees(page, "got !")


async def test_a_link_opened_where_one_is_logged_in_leaves_no_token_in_the_address(page, tmp_path) -> None:
    with served_with_token(TINY, tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "count 0")
        await page.goto("about:blank")
        await page.goto(f"{server.url}/#token={TOKEN}")
        await sees(page, "count 0")
        assert await page.evaluate("location.href") == server.url + "/"


async def test_the_console_localhost_name_works(page, tmp_path) -> None:
    with served_with_token(TINY, tmp_path) as server:
        await log_in(page, f"http://console.localhost:{server.port}")
        await sees(page, "count 0")


async def test_osc_52_leaves_the_clipboard_alone(page, tmp_path) -> None:
    with served_with_token(raw("osc52"), tmp_path) as server:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        await page.goto(server.url + "/login")
        await page.evaluate("navigator.clipboard.writeText('mine')")
        await log_in(page, server.url)
        await sees(page, "link")
        await page.keyboard.press("x")
        await sees(page, "got x")  # what was printed before is parsed by now; a query would have been answered
        assert await clipboard(page, server.url, tmp_path) == "mine"
        assert await page.title() == "sandbox-console"
        assert not [row for row in await rows(page) if "52;" in row]


async def test_the_app_s_own_copy_arrives_and_one_within_text_does_not(page, tmp_path) -> None:
    with served_with_token(TINY, tmp_path) as server:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        await log_in(page, server.url)
        await sees(page, "count 0")
        await page.keyboard.press("c")
        async with asyncio.timeout(5):
            while await clipboard(page, server.url, tmp_path) != "copied by the operator":
                await asyncio.sleep(0.05)
        await page.keyboard.press("h")
        await sees(page, "hostile done")
        assert await clipboard(page, server.url, tmp_path) == "copied by the operator"


async def test_another_origin_can_neither_fetch_nor_connect_nor_frame(page, tmp_path) -> None:
    with served_with_token(TINY, tmp_path) as server:
        await log_in(page, server.url)
        await sees(page, "count 0")
        async with other_server() as (other, seen):
            await page.goto(other)
            assert any("sandbox_console_" in cookie for cookie in seen)  # cookies ignore ports: this is the danger
            assert await page.evaluate(ATTACKS, server.url) == {
                "fetch": "refused",
                "opaque": "refused",
                "login": "refused",
                "ticket": "refused",
                "socket": "refused",
                "guessed": "refused",
                "frame": "refused",
                "script": "refused",
            }
            async with client(server) as thief:
                await replay(thief, next(cookie for cookie in seen if "sandbox_console_" in cookie))


async def replay(thief: Client, cookie: str) -> None:
    """A sandbox's server that has received the cookie sends it itself, with every header right."""
    answer = await thief.post("/ticket", {"columns": 80, "rows": 24}, Cookie=cookie)
    assert answer.status == 401
    answer = await thief.session.get(
        thief.url + "/ws",
        headers={"Cookie": cookie, "Origin": thief.url, "Sec-WebSocket-Protocol": "sandbox-console.v1"},
    )
    assert answer.status == 403


async def clipboard(page, url: str, folder: Path) -> str:
    """The clipboard, read by a page of its own: ours may not read it (Permissions-Policy)."""
    async with other_server() as (other, _):
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=other)
        reader = await page.context.new_page()
        await reader.goto(other)
        text = await reader.evaluate("navigator.clipboard.readText()")
        await reader.close()
        await page.bring_to_front()
        return text


@asynccontextmanager
async def other_server():
    """Another port of 127.0.0.1, as a sandbox's published port is; it keeps the cookies that it is sent."""
    cookies: list[str] = []

    async def index(request: web.Request) -> web.Response:
        cookies.append(request.headers.get("Cookie", ""))
        return web.Response(text="<!doctype html><title>other</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", index)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}", cookies
    finally:
        await runner.cleanup()


ATTACKS = """
async (url) => {
  const within = (promise) => Promise.race([promise, new Promise((done) => setTimeout(done, 4000, "no answer"))]);
  const refused = () => "refused";
  const json = { "Content-Type": "application/json", "X-Sandbox-Console": "login" };
  const post = (path) => fetch(url + path, { method: "POST", credentials: "include", headers: json, body: "{}" });
  const plain = (path) => fetch(url + path, { method: "POST", credentials: "include", mode: "no-cors", body: "{}" });
  const socket = (protocols) => new Promise((done) => {
    const link = new WebSocket(url.replace("http", "ws") + "/ws", protocols);
    link.onopen = () => done("open");
    link.onerror = () => done("refused");
  });
  const element = (tag, attributes) => new Promise((done) => {
    const it = Object.assign(document.createElement(tag), attributes);
    it.onload = () => {
      try { done(it.contentDocument === null ? "refused" : "loaded"); } catch { done("refused"); }
    };
    it.onerror = () => done("refused");
    document.body.append(it);
  });
  return {
    fetch: await within(fetch(url, { credentials: "include" }).then(() => "read", refused)),
    opaque: await within(plain("/ticket").then((answer) => (answer.type === "opaque" ? "refused" : "read"), refused)),
    login: await within(post("/login").then(() => "read", refused)),
    ticket: await within(post("/ticket").then(() => "read", refused)),
    socket: await within(socket([])),
    guessed: await within(socket(["sandbox-console.v1", "ticket.guess"])),
    frame: await within(element("iframe", { src: url })),
    script: await within(element("script", { src: url + "/static/login.js", type: "module" })),
  };
}
"""
