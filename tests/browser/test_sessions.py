"""Sessions listed and ended from the command line and from their page, logging out, and places that become free."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.serving import TINY, Served, client, closed, eventually, read_until, serving
from tests.browser.test_chromium import log_in, page, sees, told
from tests.browser.test_visit_records import home, rows
from tests.support.require import requires

__all__ = ["home", "page"]

CONSOLE = [sys.executable, "-m", "sandbox_console"]
HERE = Path(__file__).parent


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[Served]:
    """A server of the tiny app with two places, whose state is in ``home``."""
    options = {"token_file": str(tmp_path / "token"), "max_sessions": 2}
    argv = [sys.executable, str(HERE / "serve_main.py"), json.dumps(options), *TINY]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as running:
        yield running


def cli(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}
    return subprocess.run(
        [*CONSOLE, *words], capture_output=True, text=True, env=environment, timeout=60, check=False
    )  # fmt: skip


def listed(home: Path) -> list[dict]:
    done = cli(home, "sessions", "ls", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def add_token(home: Path, name: str) -> str:
    done = cli(home, "tokens", "add", name, "--scope", "page")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_the_command_line_lists_and_ends_a_session(server: Served, home: Path) -> None:
    assert listed(home) == []
    async with client(server) as it:
        await it.log_in()
        async with it.socket(await it.ticket()) as link:
            await read_until(link, b"count 0")
            [session] = await asyncio.to_thread(listed, home)
            assert session["actor"].startswith("browser:")
            assert session["away_s"] is None
            closing = asyncio.create_task(closed(link))
            done = await asyncio.to_thread(cli, home, "sessions", "end", session["id"][:6])
            assert (done.returncode, done.stdout.strip()) == (0, session["id"])
            assert await closing == 4002
            assert "has ended it" in server_reason(server)
    assert listed(home) == []
    gone = cli(home, "sessions", "end", session["id"], "--json")
    assert (gone.returncode, json.loads(gone.stderr)["code"]) == (3, "not_found")


def server_reason(server: Served) -> str:
    assert server.said("ended:")
    return next(line for line in server.lines if "ended:" in line)


def test_a_server_that_was_killed_leaves_nothing_to_list(server: Served, home: Path) -> None:
    folder = home / "state" / "serve"
    assert eventually(lambda: list(folder.glob("*.sock")))
    assert folder.stat().st_mode & 0o777 == 0o700
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    assert listed(home) == []


async def test_one_sees_and_ends_ones_own_sessions_and_the_owner_everybodys(server: Served, home: Path) -> None:
    token = add_token(home, "alice")
    async with client(server) as owner, client(server) as alice:
        assert await owner.log_in() == await alice.log_in(token) == 200
        async with owner.socket(await owner.ticket()) as first, alice.socket(await alice.ticket()) as second:
            await read_until(first, b"count 0")
            await read_until(second, b"count 0")
            every = await (await owner.post("/sessions/ls", {})).json()
            hers = await (await alice.post("/sessions/ls", {})).json()
            assert (every["all"], len(every["sessions"])) == (True, 2)
            assert (hers["all"], len(hers["sessions"])) == (False, 1)
            assert "alice" in hers["sessions"][0]["actor"]
            other = next(one["id"] for one in every["sessions"] if not one["actor"].startswith("browser:alice"))
            assert (await alice.post("/sessions/end", {"id": other})).status == 404
            assert (await alice.post("/sessions/end", {"id": ""})).status == 404
            assert (await alice.post("/sessions/ls", {}, X_Sandbox_Console="")).status == 401
            assert (await alice.post("/sessions/ls", {}, leave_out="Origin")).status == 403
            closing = asyncio.create_task(closed(second))
            assert (await owner.post("/sessions/end", {"id": hers["sessions"][0]["id"]})).status == 200
            assert await closing == 4002


async def test_logging_out_ends_ones_sessions_and_the_cookie(server: Served, home: Path) -> None:
    async with client(server) as it:
        await it.log_in()
        cookie = next(iter(it.session.cookie_jar))
        async with it.socket(await it.ticket()) as link:
            await read_until(link, b"count 0")
            closing = asyncio.create_task(closed(link))
            assert (await it.post("/logout", {})).status == 200
            assert await closing == 4002
        stolen = {"Cookie": f"{cookie.key}={cookie.value}"}
        assert (await it.post("/ticket", {"columns": 80, "rows": 24}, **stolen)).status == 401


async def test_logins_and_logouts_are_on_record(home: Path, tmp_path: Path) -> None:
    argv = [*CONSOLE, "serve", "--token-file", str(tmp_path / "token")]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as running:
        async with client(running) as it:
            await it.log_in()
            assert (await it.post("/logout", {})).status == 200
        assert running.stop() == 0
    [login], [logout] = rows(home, "login"), rows(home, "logout")
    assert (logout["actor"], logout["outcome"]) == (login["actor"], "ok")


@requires("chromium")
async def test_the_page_lists_sessions_ends_one_and_logs_out(page, server: Served) -> None:
    await log_in(page, server.url)
    await sees(page, "count 0")
    other = await page.context.new_page()
    await other.goto(server.url + "/sessions")
    assert "everybody" in await other.inner_text("#who")
    await other.click("td button")
    await told(page, "has ended it")
    await other.wait_for_selector("#problem:text-is('None runs.')")
    await other.click("#logout")
    await other.wait_for_selector("#token")
    await page.reload()
    await page.wait_for_selector("#token")


@requires("chromium")
async def test_closed_tabs_free_their_places_at_once_and_a_reload_keeps_its_own(
    page, server: Served, home: Path
) -> None:
    token = add_token(home, "bob")
    await log_in(page, server.url)
    await sees(page, "count 0")
    second = await page.context.new_page()
    await second.goto(server.url)
    await sees(second, "count 0")
    async with client(server) as bob:
        assert await bob.log_in(token) == 200
        body = {"columns": 80, "rows": 24}
        assert (await bob.post("/ticket", body)).status == 503
        await second.close()
        async with asyncio.timeout(60):
            while (await bob.post("/ticket", body)).status == 503:
                await asyncio.sleep(0.05)
        await page.keyboard.press("+")
        await sees(page, "count 1")
        await page.reload()
        await sees(page, "count 1")
        async with bob.socket(await bob.ticket()) as link:
            await read_until(link, b"count 0")
            assert len(await asyncio.to_thread(listed, home)) == 2
    await page.reload()
    await sees(page, "count 1")
