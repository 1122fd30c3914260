"""Logins, wrong tokens, sessions and shares in the audit log."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.browser.serving import TOKEN, Served, client, eventually, serving

from sandbox_console.model.audit import Outcome
from sandbox_console.web import login_records
from sandbox_console.web.share import ShareOptions, _recorded

CONSOLE = [sys.executable, "-m", "sandbox_console"]
NO_BACKENDS = "".join(
    f"[backends.{name}]\nenabled = false\n" for name in ("bubblewrap", "docker", "microsandbox", "podman")
)


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


def rows(home: Path, action: str) -> list[dict]:
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}
    argv = [*CONSOLE, "audit", "ls", "--json", "--action", action]
    told = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=True).stdout
    return [json.loads(line) for line in told.splitlines()]


async def test_who_came_and_how_long(server: Served, home: Path) -> None:
    async with client(server) as it:
        assert await it.log_in("a wrong token of sixteen") == 403
        assert await it.log_in() == 200
        async with it.socket(await it.ticket()) as link:
            await link.receive()
            assert eventually(lambda: [one["outcome"] for one in rows(home, "browser-session")] == [""])
    assert server.stop() == 0
    good, wrong = rows(home, "login")
    assert (good["outcome"], wrong["outcome"]) == (Outcome.OK, Outcome.DENIED)
    assert good["actor"].startswith("browser:")
    assert wrong["actor"] == "browser:@127.0.0.1"
    [session] = rows(home, "browser-session")
    assert (session["actor"], session["outcome"]) == (good["actor"], Outcome.OK)
    assert session["dur_us"] > 0
    for file in home.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()
        assert not file.is_file() or b"a wrong token of sixteen" not in file.read_bytes()


async def test_a_flood_of_wrong_tokens_is_a_handful_of_rows(server: Served, home: Path) -> None:
    async with client(server) as it:
        codes = [await it.log_in(f"a wrong token {number:06}") for number in range(40)]
    assert {403, 429} == set(codes)
    assert 1 <= len(rows(home, "login")) <= 6


async def test_a_session_whose_server_was_killed_is_settled_by_the_next_console(server: Served, home: Path) -> None:
    async with client(server) as it:
        assert await it.log_in() == 200
        async with it.socket(await it.ticket()) as link:
            await link.receive()
            assert eventually(lambda: rows(home, "browser-session"))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(20)
    environment = {"SANDBOX_CONSOLE_HOME": str(home)}
    with serving([*CONSOLE, "serve", "--token-file", str(home.parent / "token")], environment) as second:
        async with client(second) as it:
            assert await it.log_in() == 200
        assert eventually(lambda: [one["outcome"] for one in rows(home, "browser-session")] == [Outcome.UNKNOWN])


async def test_a_log_that_cannot_be_written_keeps_nobody_out(server: Served, home: Path) -> None:
    (home / "state" / "audit" / "audit.db").mkdir(mode=0o700, parents=True)
    async with client(server) as it:
        assert await it.log_in() == 200
    assert server.said("warning: this login is not in the audit log")


async def test_a_locked_log_keeps_nobody_waiting_and_gets_its_rows_later(server: Served, home: Path) -> None:
    async with client(server) as it:
        assert await it.log_in() == 200
        with (home / "state" / "audit" / "audit.lock").open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert await it.log_in("a wrong token of sixteen") == 403
            assert await it.log_in() == 200
    assert eventually(lambda: [one["outcome"] for one in rows(home, "login")] == ["ok", "denied", "ok"])


async def test_a_share_is_recorded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(home))
    said: list[str] = []
    async with _recorded(ShareOptions(agreed=True, environment="local"), said.append):
        assert [one["outcome"] for one in rows(home, login_records.SHARE)] == [""]
    assert [one["outcome"] for one in rows(home, login_records.SHARE)] == ["ok"]
    assert said == []
    with closing(sqlite3.connect(next((home / "state" / "audit").glob("*.db")))) as db:
        assert "local" in db.execute("SELECT body FROM record WHERE action = 'share'").fetchone()[0]
