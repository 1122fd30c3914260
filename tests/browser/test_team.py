"""Two people with different roles in two Chromium browsers at once, on real sandboxes: what the viewer cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Page
from tests.browser.serving import Served, client, eventually, serving
from tests.browser.test_chromium import rows, sees
from tests.browser.test_users import PASSWORD, log_in, users
from tests.browser.test_visit_records import CONSOLE
from tests.support.chromium import connected, running_chromium
from tests.support.require import requires

pytestmark = [requires("chromium"), requires("bubblewrap")]

OTHERS = "".join(f"[backends.{name}]\nenabled = false\n" for name in ("docker", "microsandbox", "podman"))


def cli(home: Path, *words: str) -> str:
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}
    done = subprocess.run([*CONSOLE, *words], capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.toml").write_text(OTHERS + '[api]\ngrants = "optional"\n[mcp]\nallow = ["list", "exec"]\n')
    for name, team in (("of-search", "search"), ("of-web", "web")):
        say = f"echo hello of {team}; exec sleep 1000"
        cli(folder, "create", name, "--image", "host", "--label", f"team={team}", "--", "sh", "-c", say)
    users(folder, "add", "ada", "--role", "operator", "-l", "team=search", password=PASSWORD)
    users(folder, "add", "eve", "--role", "viewer", password=PASSWORD)
    yield folder
    cli(folder, "rm", "--force", *(json.loads(line)["name"] for line in cli(folder, "ls", "--json").splitlines()))


@pytest.fixture
def server(home: Path) -> Iterator[Served]:
    with serving([*CONSOLE, "serve", "--max-sessions", "4"], {"SANDBOX_CONSOLE_HOME": str(home)}) as running:
        yield running


@pytest.fixture
async def two(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Page, Page]]:
    """A page in each of two browsers, which are two processes with profiles of their own."""
    async with AsyncExitStack() as stack:
        other = stack.enter_context(running_chromium(tmp_path_factory.mktemp("other")))
        pages = []
        for address in (chromium, other):
            browser = await stack.enter_async_context(connected(address))
            context = await browser.new_context(viewport={"width": 1100, "height": 700})
            pages.append(await context.new_page())
        yield pages[0], pages[1]


async def enter(page: Page, server: Served, name: str) -> None:
    await page.goto(server.url + "/login")
    await page.wait_for_selector("#name", state="visible")
    await page.fill("#name", name)
    await page.fill("#token", PASSWORD)
    await page.click("button")


def states(home: Path) -> dict[str, str]:
    return {one["name"]: one["status"] for one in map(json.loads, cli(home, "ls", "--json").splitlines())}


def refused(home: Path, name: str) -> list[str]:
    """The actions of a person that are on record as denied."""
    told = map(json.loads, cli(home, "audit", "ls", "--json", "--limit", "500").splitlines())
    own = [row for row in told if row["actor"].partition(":")[2].partition(".")[0] == name]
    return [row["action"] for row in own if row["outcome"] == "denied"]


async def settle(page: Page, seconds: float = 0.6) -> str:
    await asyncio.sleep(seconds)
    return "\n".join(await rows(page))


async def try_key(page: Page, key: str, looks: int = 80) -> None:
    """Press a key, and answer whatever is asked with yes."""
    await page.keyboard.press(key)
    for _ in range(looks):
        shown = await settle(page, 0.15)
        if "Cancel" in shown:
            break
    if typed := re.search(r"Type (\S+) to confirm", shown):
        await page.keyboard.type(typed[1], delay=20)
        await page.keyboard.press("Enter")
    elif "Cancel" in shown:
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
    await settle(page)
    await page.keyboard.press("Escape")


VERBS = {"x": "stop", "r": "restart", "p": "pause", "Control+k": "kill", "Control+d": "remove", "Q": "quarantine"}


async def test_two_people_see_what_is_theirs_and_the_viewer_changes_nothing(
    two: tuple[Page, Page], server: Served, home: Path
) -> None:
    ada, eve = two
    await enter(ada, server, "ada")
    await enter(eve, server, "eve")
    await sees(ada, "of-search")
    await sees(eve, "of-web")
    assert "of-web" not in "\n".join(await rows(ada))
    assert "READ-ONLY" in "\n".join(await rows(eve))
    assert "READ-ONLY" not in "\n".join(await rows(ada))
    before = states(home)

    for key, verb in VERBS.items():
        await try_key(eve, key, looks=10)  # it is refused without a question
        assert eventually(lambda verb=verb: verb in refused(home, "eve")), (verb, await rows(eve))
    assert states(home) == before == {"of-search": "running", "of-web": "running"}

    count = len(refused(home, "eve"))
    await eve.keyboard.press("Control+p")
    await settle(eve)
    await eve.keyboard.type("stop of-search")
    await settle(eve, 1.5)
    await eve.keyboard.press("Enter")
    await try_key(eve, "Shift", looks=10)  # it may be refused without a question
    assert states(home) == before

    # meanwhile ada works, in the other browser
    await ada.keyboard.press("x")
    await sees(ada, "Cancel")
    await ada.keyboard.press("Tab")
    await ada.keyboard.press("Enter")
    assert eventually(lambda: states(home) == {"of-search": "exited", "of-web": "running"})
    await sees(eve, "exited")
    assert len(refused(home, "eve")) >= count
    assert refused(home, "ada") == []
    done = [row for row in map(json.loads, cli(home, "audit", "ls", "--json").splitlines()) if row["outcome"] == "ok"]
    assert {row["actor"].partition(".")[0] for row in done if row["action"] in VERBS.values()} == {"browser:ada"}


async def test_an_operator_moves_files_and_a_viewer_saves_only_logs(
    two: tuple[Page, Page], server: Served, home: Path, tmp_path: Path
) -> None:
    ada, eve = two
    (sent := tmp_path / "sent.txt").write_text("of ada")
    for page, name in ((ada, "ada"), (eve, "eve")):
        await enter(page, server, name)
        await sees(page, "of-search")
    for page in two:
        await page.click("#upload")
        await page.set_input_files("#files", str(sent))
    await sees(ada, "Upload into of-search")
    await ada.wait_for_function("document.activeElement.classList.contains('xterm-helper-textarea')")
    await ada.keyboard.press("Enter")
    await sees(ada, "sent.txt is in /tmp")
    await eve.wait_for_function("document.querySelector('#sent').innerText.includes('You are a viewer')")
    await eve.click("#uploading button")
    assert cli(home, "exec", "of-search", "--", "cat", "/tmp/sent.txt") == "of ada"
    await ada.keyboard.press("6")
    await sees(ada, "download")
    await ada.keyboard.press("P")
    await sees(ada, "Go to")
    await ada.keyboard.press("End")
    await ada.keyboard.type("tmp")
    await ada.keyboard.press("Enter")
    await sees(ada, "6B  -rw")  # the message about the upload has the file's name in it too
    async with ada.expect_download() as coming:
        await ada.keyboard.press("Shift+D")
    assert Path(await (await coming.value).path()).read_text() == "of ada"
    await eve.keyboard.press("l")
    await sees(eve, "hello of")
    async with eve.expect_download() as coming:
        await eve.keyboard.press("Control+s")
    assert "hello of" in Path(await (await coming.value).path()).read_text()


async def test_a_label_that_changes_under_an_open_view_takes_it_away(
    two: tuple[Page, Page], server: Served, home: Path
) -> None:
    ada, eve = two
    await enter(ada, server, "ada")
    await enter(eve, server, "eve")
    await sees(ada, "hello of search")
    await sees(eve, "of-search")
    cli(home, "update", "of-search", "--label", "team=other", "--yes")
    until = asyncio.get_running_loop().time() + 20
    while "of-search" in "\n".join(await rows(ada)) or "hello of search" in "\n".join(await rows(ada)):
        assert asyncio.get_running_loop().time() < until, await rows(ada)
        await asyncio.sleep(0.1)
    assert "of-search" in "\n".join(await rows(eve))


async def test_forged_messages_of_a_viewer_are_refused_and_recorded(server: Served, home: Path) -> None:
    before = states(home)
    async with client(server) as it:
        assert await log_in(it, "eve", PASSWORD) == 200
        for forged in (
            ["meta", {"type": "role", "role": "admin"}], ["role", "admin"], ["env", "SANDBOX_CONSOLE_PERSON", ""],
            ["action", "stop"], {"type": "quit"}, ["stdin"], ["stdin", "x", "y"], ["resize", {"role": "admin"}],
        ):  # fmt: skip
            async with it.socket(await it.ticket()) as link:
                await link.receive()
                await link.send_str(json.dumps(forged))
                while (message := await link.receive(timeout=15)).type not in (
                    aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR,
                ):  # fmt: skip
                    assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT)
                assert link.close_code == 1008, forged
        async with it.socket(await it.ticket()) as link:
            seen = b""
            async with asyncio.timeout(30):
                while b"of-search" not in seen:
                    message = await link.receive()
                    seen += message.data if message.type is aiohttp.WSMsgType.BINARY else b""
            for keys in ("x", "\t", "\r"):
                await link.send_str(json.dumps(["stdin", keys]))
                await asyncio.sleep(1.0)
        assert eventually(lambda: "stop" in refused(home, "eve"))
    assert states(home) == before


async def test_the_api_mcp_and_status_hold_the_same_roles_and_labels(home: Path) -> None:
    told = {name: users(home, "token", name, "--scope", "api", "--scope", "mcp", "--scope", "status").strip()
            for name in ("ada", "eve")}  # fmt: skip
    argv = [*CONSOLE, "serve", "--no-page", "--api", "--status"]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as running:
        assert eventually(lambda: any("status:" in line for line in running.lines))
        lines = [running.link, *running.lines]
        api = next(line.split()[1] for line in lines if line.startswith("api:")).rstrip("/")
        status = next(line.split()[1] for line in lines if line.startswith("status:"))
        async with aiohttp.ClientSession() as session:
            body = {"image": "python:3.11-slim", "name": "x", "bucket": "agent-x"}
            async with session.post(f"{api}/v1/sandboxes", json=body, headers=bearer(told["eve"])) as answer:
                assert answer.status == 403, await answer.text()
            for name, there in (("ada", {"of-search"}), ("eve", {"of-search", "of-web"})):
                async with session.get(f"{status}.json", headers=bearer(told[name])) as answer:
                    assert {one["name"] for one in (await answer.json())["sandboxes"]} == there
                async with session.get(status, headers=bearer(told[name])) as answer:
                    assert ("of-web" in await answer.text()) is (name == "eve")
            users(home, "rm", "eve")
            async with session.get(f"{status}.json", headers=bearer(told["eve"])) as answer:
                assert answer.status == 401
    assert "create" in refused(home, "eve")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
