"""The file of tokens: who is let in, and who can read it."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path

import pytest
from tests.browser.serving import client
from tests.browser.serving import serving as page_serving
from tests.servers.serving import Home

from sandbox_console.errors import ConfigError, Conflict, NotFound, UsageError
from sandbox_console.service.tokens import Tokens
from sandbox_console.web.logins import MOST_LOGINS, Logins


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    tmp_path.chmod(0o700)
    return Tokens(tmp_path / "tokens.json")


def test_a_token_opens_what_its_scopes_name_until_it_is_over_or_taken_away(tmp_path):
    now = [1000.0]
    store = Tokens(tmp_path / "tokens.json", lambda: now[0])
    made, text = store.add("agents", ["api"], lifetime_s=60)
    assert store.find(text, "api") == made
    assert store.find(text, "mcp") is None
    for wrong in ("", "x", text[:-1], text + "x", text.replace(made.id, "0" * 12), "sct_" + "é" * 56, text.upper()):
        assert store.find(wrong, "api") is None, wrong
    now[0] += 61
    assert store.find(text, "api") is None
    other = Tokens(tmp_path / "tokens.json")
    second, text = other.add("more", ["page", "mcp"])
    assert store.find(text, "mcp") == second
    other.remove("more")
    assert store.find(text, "mcp") is None


def test_only_hashes_are_kept_in_a_file_for_its_owner_alone(tokens, tmp_path):
    made, text = tokens.add("agents", ["api"])
    path = tmp_path / "tokens.json"
    assert text.rsplit("_", 1)[0] not in path.read_text()
    assert text[-43:] not in path.read_text()
    assert made.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir() if "part" in one.name] == []


def test_a_file_that_others_read_a_link_and_damage_are_refused(tokens, tmp_path):
    _, text = tokens.add("agents", ["api"])
    path = tmp_path / "tokens.json"
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="read by others"):
        Tokens(path).find(text, "api")
    with pytest.raises(ConfigError, match="read by others"):
        tokens.find(text, "api")
    path.chmod(0o600)
    for damage in ("", "{}", '{"tokens": [{"id": 1}]}', "\xff"):
        path.write_bytes(damage.encode("latin-1"))
        os.utime(path, ns=(1, 1))
        with pytest.raises(ConfigError, match="not a file of tokens"):
            Tokens(path).every()
    path.unlink()
    (tmp_path / "other").write_text('{"tokens": []}')
    path.symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError):
        Tokens(path).every()


def test_several_who_add_at_once_lose_nothing(tmp_path):
    path = tmp_path / "tokens.json"
    threads = [threading.Thread(target=Tokens(path).add, args=(f"t{n}", ["api"])) for n in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert {one.name for one in Tokens(path).every()} == {f"t{n}" for n in range(12)}


def test_what_is_no_token_is_told(tokens):
    tokens.add("agents", ["api"])
    with pytest.raises(Conflict):
        tokens.add("agents", ["api"])
    for name, scopes in (("", ["api"]), ("a b", ["api"]), ("x" * 64, ["api"]), ("ok", []), ("ok", ["api", "root"])):
        with pytest.raises(UsageError):
            tokens.add(name, scopes)
    with pytest.raises(NotFound):
        tokens.remove("nobody")


def test_the_command_shows_a_token_once(tmp_path):
    home = Home(tmp_path / "home")
    home.configure("")
    made = home.run("tokens", "add", "agents", "--scope", "api", "--scope", "mcp", "--expires", "30d")
    assert made.returncode == 0, made
    text = made.stdout.strip()
    assert Tokens(home.path / "state" / "tokens.json").find(text, "mcp").name == "agents"
    listed = home.run("tokens", "ls")
    assert "api mcp" in listed.stdout
    assert text[-43:] not in listed.stdout + home.run("tokens", "ls", "--json").stdout
    assert home.run("tokens", "rm", "agents").returncode == 0
    assert home.run("tokens", "rm", "agents").returncode == 3
    assert home.run("tokens", "add", "x", "--scope", "root").returncode == 2


async def test_a_token_for_the_page_logs_in_until_it_is_taken_away(tmp_path):
    home = Home(tmp_path / "home")
    home.configure("")
    texts = {name: home.token(name, *scopes) for name, scopes in (("ann", ["page"]), ("bot", ["api", "mcp"]))}
    argv = [sys.executable, "-m", "sandbox_console", "serve", "--read-only"]
    with page_serving(argv, home.environment) as server:
        async with client(server) as it:
            assert await it.log_in(texts["bot"]) == 403
            assert await it.log_in(texts["ann"]) == 200
            await it.ticket()
            assert server.said("logged in: browser:ann.")
            home.run("tokens", "rm", "ann")
            assert (await it.post("/ticket", {"columns": 80, "rows": 24, "view": None})).status == 401
            assert await it.log_in(texts["ann"]) == 403


def test_a_file_of_tokens_that_is_damaged_keeps_no_login(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    text = tokens.add("ann", ["page"])[1]
    logins = Logins("an operator's own token", tokens=tokens)
    login = logins.exchange(text, "peer")
    assert login.actor.startswith("browser:ann.")
    assert logins.find(login.cookie) is login
    (tmp_path / "tokens.json").write_text("{}")
    assert logins.find(login.cookie) is None
    with pytest.raises(ConfigError):
        logins.exchange(text, "peer")
    assert logins.exchange("an operator's own token", "peer").token is None


def test_a_tokens_many_logins_push_out_nobody_elses(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    ann, bob = (tokens.add(name, ["page"])[1] for name in ("ann", "bob"))
    logins = Logins("an operator's own token", tokens=tokens)
    others = [logins.exchange(text, "peer") for text in ("an operator's own token", bob)]
    first = logins.exchange(ann, "peer")
    for _ in range(MOST_LOGINS):
        logins.exchange(ann, "peer")
    assert logins.over(first)
    assert not any(logins.over(login) for login in others)
