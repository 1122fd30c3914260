"""How the shells page and copy mode look at 80x24 and 120x40."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import NOW, screen_text, until
from tests.tui.app.sheet import MIDDLE, SMALL
from tests.tui.app.test_shells import LEAVE, on, page, shells, typing

from sandbox_console.tui.base.themes import DARK
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.shell.shell_dialog import ChoiceScreen

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
SIZES = (SMALL, MIDDLE)
THEMES = (DARK,)


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    monkeypatch.setattr("sandbox_console.testing.fake_guest.time.time", lambda: NOW)


async def test_tabs_splits_and_a_broadcast(run_app, sheets):
    async with run_app(size=SMALL) as (app, pilot):
        await page(pilot, app, 2)
        await pilot.press(LEAVE, "minus")
        await until(pilot, lambda: shells(app).open_count == 3 and typing(app)())
        await pilot.press(*"exit 3", "enter", LEAVE, "n")
        await until(pilot, lambda: shells(app).open_count == 3 and typing(app)())
        await pilot.press(LEAVE, "1")
        await until(pilot, lambda: "ended: exit 3" in screen_text(app))
        await until(pilot, lambda: app.focused is None)
        await sheets(app, pilot, "keys", sizes=SIZES, themes=THEMES)
        await pilot.press("asterisk", "b")
        await until(pilot, on(app, ConfirmScreen))
        await sheets(app, pilot, "question", sizes=SIZES, themes=THEMES)
        await pilot.press("y")
        await until(pilot, lambda: shells(app).broadcasting and typing(app)())
        await sheets(app, pilot, "broadcast", sizes=SIZES, themes=THEMES)


async def test_copy_mode_with_a_search_and_a_selection(run_app, sheets):
    async with run_app(size=SMALL) as (app, pilot):
        await page(pilot, app)
        text = b"".join(b"\x1b[3%dmline %d\x1b[0m of the log\r\n" % (at % 8, at) for at in range(60))

        async def copying():
            view = app.focused
            view.end_copy()
            view.search("line 5")
            view.action_copy_select("cells")
            view.action_copy_move(12, -1)

        app.focused.feed(text)
        await copying()
        await sheets(app, pilot, "small", sizes=(SMALL,), themes=THEMES)
        await pilot.resize_terminal(*MIDDLE)
        await pilot.pause()
        await copying()
        await sheets(app, pilot, "middle", sizes=(MIDDLE,), themes=THEMES)


async def test_the_choice_of_a_shell(run_app, sheets):
    async with run_app(size=SMALL) as (app, pilot):
        await pilot.press("percent_sign")
        await until(pilot, on(app, ChoiceScreen))
        await sheets(app, pilot, ready=lambda: "Asking" not in screen_text(app), sizes=SIZES, themes=THEMES)
