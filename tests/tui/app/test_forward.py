"""A port of a real sandbox forwarded from the menu: said, shown, ended from there and by quitting."""

from __future__ import annotations

import urllib.request
from asyncio import to_thread

from tests.support.require import requires
from tests.tui.app.scene import screen_text, until
from textual.widgets import Input, OptionList

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.model.action import Create, Remove
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen

pytestmark = requires("bubblewrap")


async def outcomes(console):
    return [row.outcome for row in await console.history(AuditQuery(action="forward"))]


async def test_a_port_is_forwarded_from_the_menu_shown_and_ended(run_app, tmp_path):
    (backend,) = BubblewrapProvider.backends(BackendSettings(tmp_path / "bubblewrap", {}))
    command = ("python3", "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", "/usr/share")
    async with run_app(backend, ready=False) as (app, pilot):
        console = app.service
        ref = (
            await console.perform(
                Create(SandboxSpec("web", image="host", command=command), "bubblewrap", "local")
            ).result()
        ).ref
        await until(pilot, lambda: ref in app.fleet.sandboxes and app.fleet.sandboxes[ref].status is Status.RUNNING)

        async def choose(label):
            await until(pilot, lambda: isinstance(app.screen, MenuScreen))
            options = app.screen.query_one(OptionList)
            await until(pilot, lambda: options.option_count)
            options.highlighted = next(at for at, one in enumerate(options.options) if label in str(one.prompt))
            await pilot.press("enter")

        async def forward():
            await pilot.press("m")
            await choose("Forward port")

        async def asked():
            await until(pilot, lambda: isinstance(app.screen, AskScreen) and app.screen.query(Input))
            assert app.screen.query_one(Input).value == "8000"
            await pilot.press("enter")
            await until(pilot, lambda: app.screen is app.main and app.forwards.count)

        app.main.table.move_to(ref)
        await forward()
        await asked()
        url = app.clipboard
        assert url.startswith("http://127.0.0.1:")
        assert any(f"Copied {url}: port 8000 of web" in message for _, _, message in app.message_log)
        await until(pilot, lambda: f"⇄ {url.rpartition(':')[2]}→8000" in screen_text(app))

        async def served():
            try:
                return (await to_thread(urllib.request.urlopen, url, timeout=30)).status == 200
            except OSError:  # the server inside is not up yet
                return False

        while not await served():
            await pilot.pause(0.05)
        await forward()
        await choose(url.removeprefix("http://"))
        await until(pilot, lambda: not app.forwards.count and "⇄" not in screen_text(app))
        assert await outcomes(console) == ["ok"]
        await forward()
        await asked()
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert "1 forwarded port: ended." in screen_text(app)
        await pilot.press("escape")
    async with open_console(Config(), backends=[backend]) as console:
        assert await outcomes(console) == ["ok", "ok"]
        await console.perform(Remove(ref, force=True)).result()
