"""Which variables of the operator reach the app of a browser session: a secret's only where it is named to ``serve``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.browser.serving import Client, Served, client, eventually, read_until, serving
from tests.browser.test_real_app import CONSOLE, cli
from tests.support.require import requires

from sandbox_console.errors import UsageError
from sandbox_console.web import ServeOptions
from sandbox_console.web.environment import app_environment

pytestmark = requires("bubblewrap")

SECRET = "hunter2-of-the-agent"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("KEY_OF_AGENT", SECRET)
    monkeypatch.setenv("OTHER_KEY", "never-passed")
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.toml").write_text(
        "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
        '[secrets.agent]\nfrom = "env:KEY_OF_AGENT"\n[secrets.agent2]\nfrom = "env:OTHER_KEY"\n'
    )
    words = ["--image", "host", "--secret", "agent", "--", "sh", "-c", "echo length ${#agent}; exec sleep 1000"]
    cli(folder, "create", "needs-a-key", "--no-start", *words)
    yield folder
    cli(folder, "rm", "--force", "needs-a-key")


def serve(home: Path, *words: str):
    return serving([*CONSOLE, "serve", *words], {"SANDBOX_CONSOLE_HOME": str(home)})


async def log_in(it: Client, server: Served) -> None:
    assert await it.log_in(server.link.split("#token=")[1]) == 200


async def start(link: aiohttp.ClientWebSocketResponse) -> None:
    await link.send_str('["stdin", "t"]')
    await read_until(link, b"Cancel")
    await link.send_str('["stdin", "\\t\\r"]')


def started(home: Path) -> list[dict[str, str]]:
    rows = map(json.loads, cli(home, "audit", "ls", "--json").splitlines())
    return [row for row in rows if row["action"] == "start" and row["outcome"]]


def environments(pid: int) -> list[bytes]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}/environ").read_bytes() for child in children]


async def test_a_secret_that_is_passed_on_works_in_a_browser_session(home: Path) -> None:
    with serve(home, "--pass-env", "KEY_OF_AGENT") as server:
        async with client(server) as it:
            await log_in(it, server)
            async with it.socket(await it.ticket()) as link:
                await read_until(link, b"needs-a-key")
                (environment,) = environments(server.process.pid)
                await start(link)
                length = f"length {len(SECRET)}"
                assert await asyncio.to_thread(eventually, lambda: length in cli(home, "logs", "needs-a-key"))
        assert SECRET.encode() in environment
        assert b"never-passed" not in environment
        assert SECRET not in "".join(server.lines)
        assert [row["outcome"] for row in started(home)] == ["ok"]


async def test_one_that_is_not_is_unknown_there(home: Path) -> None:
    with serve(home) as server:
        async with client(server) as it:
            await log_in(it, server)
            async with it.socket(await it.ticket()) as link:
                await read_until(link, b"needs-a-key")
                assert not [one for one in environments(server.process.pid) if b"KEY_OF_AGENT" in one]
                await start(link)
                await read_until(link, b"KEY_OF_AGENT")
        assert eventually(lambda: [row["outcome"] for row in started(home)] == ["failed"])


@pytest.mark.parametrize(
    ("name", "told"), [("NOT_SET_ANYWHERE", "is not set"), ("SANDBOX_CONSOLE_TOKEN", "login token"), ("A=B", "not set")]
)
def test_a_name_that_cannot_be_passed_is_told(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ServeOptions(pass_env=(name,)).check()


def test_a_session_looks_for_microvms_where_its_server_does() -> None:
    found = app_environment(80, 24, "browser:a@b", environment={"MSB_HOME": "/srv/msb", "MSB_API_KEY": SECRET})
    assert found["MSB_HOME"] == "/srv/msb"
    assert SECRET not in found.values()


async def test_modules_of_the_folder_one_is_in_are_not_imported(home: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name in ("textual", "sandbox_console", "json"):
        (workspace / f"{name}.py").write_text("open('imported', 'w')\nraise SystemExit(1)\n")
    environment = {"SANDBOX_CONSOLE_HOME": str(home)}
    command = str(Path(sys.executable).with_name("sandbox-console"))
    with serving([command, "serve"], environment, workspace) as server:
        async with client(server) as it:
            await log_in(it, server)
            async with it.socket(await it.ticket()) as link:
                await read_until(link, b"needs-a-key")
    assert not (workspace / "imported").exists()
