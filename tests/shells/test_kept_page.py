"""The app's page of kept shells, on a real one: seen, watched, typed into, and ended."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.tui.app.scene import screen_text, until

from sandbox_console.service import open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.shell.attach_screen import KeptShellScreen
from sandbox_console.tui.shell.kept_shells_screen import KeptShellsScreen
from sandbox_console.tui.widgets.terminal.terminal import TerminalView


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_they_are_listed_watched_attached_to_and_ended(
    cli: Cli, box: str, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    with Terminal(cli, "shell", box, "--as", "work") as terminal:
        terminal.type(b"x=kept$((40+2)); echo b$((1))gun\r")
        terminal.until(b"b1gun")
        terminal.type(b"\x1d")
        terminal.read_to_end()
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(cli.home))
    async with open_console() as console:
        app = ConsoleApp(console)
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(pilot, lambda: app.fleet.sandboxes)
            await pilot.press("tilde")
            await until(pilot, lambda: isinstance(app.screen, KeptShellsScreen) and "work" in screen_text(app))
            assert "nobody" in screen_text(app)
            assert "23h" in screen_text(app)
            await pilot.press("w")
            await until(pilot, lambda: isinstance(app.screen, KeptShellScreen))
            await until(pilot, lambda: "b1gun" in app.screen.query_one(TerminalView).screen_text())
            assert "Only watching" in screen_text(app)
            await pilot.press(*"echo", "space", "w", "enter")
            await pilot.press("ctrl+right_square_bracket")
            await until(pilot, lambda: isinstance(app.screen, KeptShellsScreen))
            await until(pilot, lambda: "nobody" in screen_text(app))
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, KeptShellScreen))
            view = app.screen.query_one(TerminalView)
            await until(pilot, lambda: "b1gun" in view.screen_text())
            assert "echo w" not in view.screen_text()
            await pilot.press(*"echo", "space", "dollar_sign", "x", "full_stop", "enter")
            await until(pilot, lambda: "kept42." in view.screen_text())
            await pilot.press("ctrl+right_square_bracket")
            await until(pilot, lambda: isinstance(app.screen, KeptShellsScreen))
            await pilot.press("x")
            await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
            await pilot.press("y")
            await until(pilot, lambda: "No shell is kept" in screen_text(app))
        assert await console.kept_shells.list() == []
        assert not list((cli.home / "state" / "shells").iterdir())
