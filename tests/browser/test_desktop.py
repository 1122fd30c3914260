"""``desktop``: a window of its own by the real Chromium, and the entry in the menu."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import webbrowser
from pathlib import Path

import pytest
from tests.browser.serving import TINY
from tests.cli.conftest import Cli, cli
from tests.support.chromium import ARGS, connected

from sandbox_console.errors import Conflict, ConsoleError
from sandbox_console.model.action import Create
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import find_paths, open_console
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.web.desktop import find_app_browser, install, run_desktop
from sandbox_console.web.options import ServeOptions

__all__ = ["cli"]


def a_browser(monkeypatch, folder: Path, script: str) -> None:
    """Let PATH have one program, named chromium."""
    program = folder / "bin" / "chromium"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


def left() -> list[Path]:
    return [*find_paths().state.glob("window-*"), *find_paths().state.glob("open-*")]


@pytest.mark.filterwarnings("ignore::aiohttp.web_exceptions.NotAppKeyWarning")  # the server is in this process
async def test_the_window_shows_the_console_and_ends_it(monkeypatch, tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on PATH")
    a_browser(monkeypatch, tmp_path, shlex.join(["exec", chromium, *ARGS, "--remote-debugging-port=0"]) + ' "$@"')
    said: list[str] = []
    running = asyncio.create_task(run_desktop(ServeOptions(command=TINY), said.append))
    async with asyncio.timeout(120):
        while not (ports := list(find_paths().state.glob("window-*/DevToolsActivePort"))) or not ports[0].read_text():
            assert not running.done(), said
            await asyncio.sleep(0.05)
        token = said[0].partition("#token=")[2]
        processes = [one.read_bytes() for one in Path("/proc").glob("[0-9]*/cmdline") if one.exists()]
        assert token
        assert not any(token.encode() in words for words in processes)
        assert {path.stat().st_mode & 0o077 for path in left()} == {0}
        async with connected(f"http://127.0.0.1:{ports[0].read_text().splitlines()[0]}") as browser:
            [page] = browser.contexts[0].pages
            await page.wait_for_function("() => document.title.includes('sandbox-console')")
            await page.wait_for_function("() => window.sandboxConsole?.rows().join().includes('count 0')")
            assert "token" not in page.url
            session = await browser.new_browser_cdp_session()
            await session.send("Browser.close")
        assert await running == 0
    assert left() == []


async def test_a_browser_that_does_not_start_is_an_error(monkeypatch, tmp_path):
    a_browser(monkeypatch, tmp_path, "exit 1")
    with pytest.raises(ConsoleError, match="chromium ended with exit code 1"):
        await run_desktop(ServeOptions(command=TINY), [].append)
    assert left() == []


async def test_without_such_a_browser_the_default_one_shows_it(monkeypatch, tmp_path):
    snap = tmp_path / "bin" / "chromium"
    snap.parent.mkdir()
    snap.symlink_to("/snap/bin/chromium")
    monkeypatch.setenv("PATH", str(snap.parent))
    assert find_app_browser() is None
    said: list[str] = []

    def stop(link: str) -> bool:
        said.append(link)
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    monkeypatch.setattr(webbrowser, "open", stop)
    assert await run_desktop(ServeOptions(command=TINY), said.append) == 0
    assert any("the default browser shows the page" in line for line in said)
    assert said[-1].startswith("file:///")


def test_the_entry_is_installed(cli: Cli, tmp_path: Path, monkeypatch) -> None:
    data = tmp_path / "data"
    program = tmp_path / "a b%" / "sandbox-console"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    monkeypatch.setenv("PATH", str(program.parent))
    for _ in range(2):
        done = cli("desktop", "--install")
        assert done.returncode == 0, done.stderr
    entry, icon = map(Path, done.stdout.decode().splitlines())
    assert entry == data / "applications" / "sandbox-console.desktop"
    assert f'Exec="{tmp_path}/a b%%/sandbox-console" "desktop"' in entry.read_text().splitlines()
    assert icon.read_bytes().startswith(b"<svg")
    assert len(list(data.rglob("*.*"))) == 2


async def test_no_guest_chooses_what_the_desktop_runs(tmp_path: Path, monkeypatch) -> None:
    """Neither the browser nor the program of the entry is one in a workspace, and the entry is not written there."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(Create(SandboxSpec("one", "x", workspace=str(work)), "fake", "local")).result()
    a_browser(monkeypatch, work, f"echo >{tmp_path}/ran")
    shutil.copy(work / "bin/chromium", work / "bin/sandbox-console")
    path = os.environ["PATH"]
    monkeypatch.setenv("XDG_DATA_HOME", str(work / "data"))
    with pytest.raises(Conflict, match="your desktop runs what it names"):
        install()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", path)
    assert str(work) not in install()[0].read_text()
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(webbrowser, "open", lambda _: os.kill(os.getpid(), signal.SIGTERM) or True)
    assert await run_desktop(ServeOptions(command=TINY), [].append) == 0
    assert not (tmp_path / "ran").exists()
