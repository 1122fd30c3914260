"""Recordings play in npm's asciinema-player in a real Chromium: those of shells and of commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.browser.test_chromium import page
from tests.cli.conftest import CONFIG, Cli
from tests.support import asciinema
from tests.support.require import missing, requires

from sandbox_console.recording.writer import Writer
from sandbox_console.secrets.redactor import Redactor

__all__ = ["page"]

pytestmark = [requires("chromium"), pytest.mark.timeout(400)]

PAGE = """<!doctype html><link rel=stylesheet href=/bundle/asciinema-player.css><div id=it></div>
<script src=/bundle/asciinema-player.min.js></script>
<script>window.player = AsciinemaPlayer.create("/one.cast", document.getElementById("it"), {preload: true});</script>"""
SECRET = "correct-horse-battery"


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if reason := missing("asciinema-player"):
        pytest.skip(f"asciinema-player: {reason}")


@pytest.fixture(params=["shell", "exec"])
async def cast(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A recording as the console writes it: colours, a wide character, another size, a masked secret."""
    return await (_of_a_shell if request.param == "shell" else _of_a_command)(tmp_path)


async def _of_a_command(folder: Path) -> Path:
    """What ``exec --record`` wrote, of a real command."""
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    cli, source = Cli(folder / "home"), folder / "value"
    cli.home.mkdir()
    source.write_text(SECRET)
    source.chmod(0o600)
    (cli.home / "config.toml").write_text(f'{CONFIG}[secrets.TOKEN]\nfrom = "file:{source}"\n')

    def ok(*words: str) -> None:
        process = cli.start(*words)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said

    ok("create", "box", "--image", "host", "--secret", "TOKEN", "--", "sleep", "1000")
    try:
        script = r"printf '\033[1;31mred\033[0m 漢字\n'; echo token $TOKEN; printf '\033[10;20Hmoved' >&2; echo; echo after the resize"
        ok("exec", "--record", "box", "--", "sh", "-c", script)
    finally:
        ok("rm", "--force", "box")
    [path] = (cli.home / "state/recordings").glob("*.cast")
    return path


async def _of_a_shell(tmp_path: Path) -> Path:
    writer = Writer(tmp_path / "one.cast", {"width": 80, "height": 24, "timestamp": 1_700_000_000}, 1 << 20)
    await writer.begin()
    for data in ("$ \x1b[1;31mred\x1b[0m 漢字\r\n", f"token {SECRET}\r\n", "\x1b[10;20Hmoved"):
        await writer.output(data.encode())
    writer.resize(100, 30)
    await writer.output(b"\r\nafter the resize\r\n")
    await writer.end(Redactor([SECRET]).across)
    return writer.path


@pytest.fixture
async def server(cast: Path) -> AsyncIterator[str]:

    async def recording(_: web.Request) -> web.FileResponse:
        return web.FileResponse(cast)

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_static("/bundle", asciinema.bundle())
    app.router.add_get("/one.cast", recording)
    app.router.add_get("/", index)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


async def test_a_recording_plays_to_its_end(page, server: str) -> None:
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    await page.goto(server)
    ended = "new Promise(end => { player.addEventListener('ended', () => end(true)); player.play(); })"
    assert await asyncio.wait_for(page.evaluate(ended), 60)
    shown = "".join((await page.inner_text(".ap-term")).split())  # each run of cells is an element of its own
    for text in ("red漢字", "token[secret]", "moved", "aftertheresize"):
        assert text in shown
    assert SECRET not in shown
    assert problems == []
