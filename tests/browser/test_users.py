"""People log in with names and passwords, each with a role, and a change to one of them holds at once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.browser.serving import TOKEN, Client, Served, client, eventually, read_until, serving
from tests.browser.test_visit_records import CONSOLE, NO_BACKENDS, rows

PASSWORD = "correct horse battery"


def users(home: Path, *words: str, password: str = "") -> str:
    """Run ``users``, with a password on stdin."""
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}
    done = subprocess.run(
        [*CONSOLE, "users", *words],
        input=password,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.toml").write_text(NO_BACKENDS)
    (token := tmp_path / "token").write_text(TOKEN)
    token.chmod(0o600)
    return folder


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[Served]:
    argv = [*CONSOLE, "serve", "--token-file", str(tmp_path / "token")]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as running:
        yield running


def named(home: Path, row: dict) -> str | None:
    """The user that an audit row is about."""
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}
    argv = [*CONSOLE, "audit", "show", str(row["id"]), "--json"]
    told = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=True).stdout
    return json.loads(told)["attempt"]["body"].get("user")


async def log_in(it: Client, name: str, password: str) -> int:
    answer = await it.post("/login", {"name": name, "password": password}, X_Sandbox_Console="login")
    if answer.status == 200:
        it.key = (await answer.json())["key"]
    return answer.status


async def ways(it: Client) -> dict[str, object]:
    async with it.session.get(f"{it.url}/login/ways") as answer:
        return await answer.json()


async def test_a_name_and_its_password_open_a_session_that_is_recorded_as_the_persons(
    server: Served, home: Path
) -> None:
    async with client(server) as it:
        assert await ways(it) == {"password": False, "proxy": "", "oidc": ""}
        assert await log_in(it, "ada", PASSWORD) == 403
        users(home, "add", "ada", "--role", "viewer", password=PASSWORD + "\n")
        assert await ways(it) == {"password": True, "proxy": "", "oidc": ""}
        assert await log_in(it, "ada", PASSWORD) == 200
        async with it.socket(await it.ticket()) as link:
            assert b"READ-ONLY" in await read_until(link, b"READ-ONLY")
    server.stop()
    good, wrong = rows(home, "login")
    assert (good["outcome"], wrong["outcome"]) == ("ok", "denied")
    assert good["actor"].startswith("browser:ada.")
    assert (wrong["actor"], named(home, wrong)) == ("browser:@127.0.0.1", None), "a stranger's text is not recorded"
    [session] = rows(home, "browser-session")
    assert session["actor"] == good["actor"]
    assert [named(home, row) for row in rows(home, "user-add")] == ["ada"]
    for file in home.rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes()


async def test_unknown_names_and_wrong_passwords_get_one_answer(server: Served, home: Path) -> None:
    users(home, "add", "ada", password=PASSWORD)
    users(home, "add", "proxied", "--no-password")
    answers = set()
    async with client(server) as it:
        for name, password in (("ada", "wrong wrong wrong"), ("bob", PASSWORD), ("proxied", ""), ("proxied", PASSWORD)):
            answer = await it.post("/login", {"name": name, "password": password}, X_Sandbox_Console="login")
            answers.add((answer.status, await answer.text(), str(sorted(set(answer.headers) - {"Date"}))))
            assert not answer.cookies
    [(status, text, _)] = answers
    assert (status, text) == (403, "That name or password is wrong.\n")
    assert [named(home, row) for row in rows(home, "login")] == ["proxied", "proxied", None, "ada"]


async def test_guesses_of_one_name_are_limited_and_lock_out_nobody_else(server: Served, home: Path) -> None:
    for name in ("ada", "bob"):
        users(home, "add", name, password=PASSWORD)
    async with client(server, reuse=False) as it:
        codes = await asyncio.gather(*(log_in(it, "ada", f"a wrong one {number}") for number in range(20)))
        assert sorted(codes) == [403] * 5 + [429] * 15, "also when all come at once"
        assert await log_in(it, "ada", PASSWORD) == 429, "the right one is not checked either"
        assert await log_in(it, "bob", PASSWORD) == 200
        assert await it.log_in(TOKEN) == 200
        text = users(home, "token", "ada", "--scope", "page").strip()
        assert await it.log_in(text) == 200, "a token cannot be guessed, so its owner is never locked out"
    assert len([row for row in rows(home, "login") if row["outcome"] == "denied"]) == 5


@pytest.mark.parametrize(
    ("words", "password"),
    [
        (["set", "ada", "--role", "viewer"], ""), (["set", "ada", "-l", "team=web"], ""), (["rm", "ada"], ""),
        (["passwd", "ada"], "another long one"),
    ],
    ids=["role", "labels", "removed", "password"],
)  # fmt: skip
@pytest.mark.parametrize("by", ["password", "token"])
async def test_a_change_to_a_user_ends_the_open_session_at_once(
    server: Served, home: Path, words: list[str], password: str, by: str
) -> None:
    users(home, "add", "ada", "--role", "operator", password=PASSWORD)
    text = users(home, "token", "ada", "--scope", "page").strip()
    async with client(server) as it:
        assert (await log_in(it, "ada", PASSWORD) if by == "password" else await it.log_in(text)) == 200
        ticket = await it.ticket()
        async with it.socket(await it.ticket()) as link:
            await link.receive()
            users(home, *words, password=password)
            async with asyncio.timeout(10):
                while (await link.receive()).type not in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED):
                    pass
        answer = await it.post("/ticket", {"columns": 80, "rows": 24})
        assert answer.status == 401
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await it.socket(ticket)
        assert refused.value.status == 401
    assert server.said("its token or user was changed or removed")


async def test_a_session_is_never_one_that_somebody_prepared(server: Served, home: Path) -> None:
    users(home, "add", "ada", password=PASSWORD)
    async with client(server) as attacker, client(server) as victim:
        assert await attacker.log_in() == 200
        prepared = {cookie.key: cookie.value for cookie in attacker.session.cookie_jar}
        victim.session.cookie_jar.update_cookies(prepared, aiohttp.client.URL(server.url))
        assert await log_in(victim, "ada", PASSWORD) == 200
        got = {cookie.key: cookie.value for cookie in victim.session.cookie_jar}
        assert got.keys() == prepared.keys()
        assert got != prepared
        stale = attacker.key
        attacker.key = victim.key
        answer = await attacker.post("/ticket", {"columns": 80, "rows": 24})
        assert answer.status == 401, "a cookie and a key of two logins are none"
        attacker.key = stale
    ada = [row["actor"] for row in rows(home, "login") if row["actor"].startswith("browser:ada.")]
    assert len(ada) == 1


async def test_forged_bodies_open_nothing(server: Served, home: Path) -> None:
    users(home, "add", "ada", password=PASSWORD)
    async with client(server) as it:
        for body in (
            {"name": "ada"}, {"name": "ada", "password": None}, {"name": ["ada"], "password": PASSWORD},
            {"name": "ada", "password": [PASSWORD]}, {"name": "ADA", "password": PASSWORD}, {"user": "ada"},
            {"name": "", "password": PASSWORD}, {"name": "ada\x00", "password": PASSWORD}, {},
        ):  # fmt: skip
            answer = await it.post("/login", body, X_Sandbox_Console="login")
            assert answer.status in (403, 429), body
        answer = await it.post(
            "/login", {"name": "ada", "password": PASSWORD}, leave_out="Origin", X_Sandbox_Console="login"
        )
        assert answer.status == 403
        answer = await it.post("/login", {"name": "ada", "password": PASSWORD}, X_Sandbox_Console="x")
        assert answer.status == 403


def test_whose_rights_an_app_has_cannot_be_passed_to_it_by_the_operators_environment() -> None:
    argv = [sys.executable, "-m", "sandbox_console", "serve", "--pass-env", "SANDBOX_CONSOLE_PERSON"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "each login decides" in done.stderr


async def test_a_viewer_cannot_fill_the_servers_disk_with_uploads(server: Served, home: Path) -> None:
    for name, role, status in (("eve", "viewer", 403), ("ada", "admin", 200)):
        users(home, "add", name, "--role", role, password=PASSWORD)
        async with client(server) as it:
            assert await log_in(it, name, PASSWORD) == 200
            async with it.socket(await it.ticket()) as link:
                session = (await link.receive_json())[1]
                await read_until(link, b"sandbox-console")
                answer = await it.post("/upload", {}, X_Session=session, X_File_Name="big")
                assert (answer.status, bool(list(home.rglob("big")))) == (status, status == 200)


async def test_a_person_changes_no_views_of_others(server: Served, home: Path) -> None:
    state = home / "state"
    users(home, "add", "eve", "--role", "viewer", password=PASSWORD)
    async with client(server) as it:
        assert await log_in(it, "eve", PASSWORD) == 200
        async with it.socket(await it.ticket()) as link:
            await read_until(link, b"READ-ONLY")
            await link.send_str(json.dumps(["stdin", ":save everybodys\r"]))
            assert await asyncio.to_thread(eventually, lambda: list(state.rglob("views.json")))
    [saved] = state.rglob("views.json")
    assert saved.parent.parent == state / "people"
    assert "everybodys" in saved.read_text()


async def test_nobody_keeps_others_out_by_taking_every_place(home: Path, tmp_path: Path) -> None:
    users(home, "add", "eve", password=PASSWORD)
    users(home, "add", "ada", "--role", "admin", password=PASSWORD)
    argv = [*CONSOLE, "serve", "--token-file", str(tmp_path / "token"), "--max-sessions", "2"]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as server:
        async with client(server) as eve, client(server) as again, client(server) as ada:
            assert await log_in(eve, "eve", PASSWORD) == await log_in(again, "eve", PASSWORD) == 200
            assert await log_in(ada, "ada", PASSWORD) == 200
            async with eve.socket(await eve.ticket()) as first, again.socket(await again.ticket()) as second:
                await first.receive()
                await second.receive()
                full = {"columns": 80, "rows": 24}
                assert (await eve.post("/ticket", full)).status == 503, "her own next one needs one of hers"
                async with ada.socket(await ada.ticket()) as link:
                    assert (await link.receive_json())[0] == "ready"
                    assert server.said("a newer session took its place")
                    assert (await again.post("/ticket", full)).status == 503, "who has one place takes no other"
