"""What the row of tabs promises from every pane on a small screen, Ctrl+C on every page, and saves that ask where."""

from __future__ import annotations

import re

import pytest
from tests.tui.app.scene import NOW, fleet, ref, screen_text, until
from textual.widgets import Input

from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.detail.tab_bar import TABS, TabBar
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.keys.main_keys import tab_digits
from sandbox_console.tui.widgets.table.table import FleetTable

AGENT = "aaaaaaaaaaaa"
DIGITS = {tab: digit for digit, tab in tab_digits()}


@pytest.mark.parametrize("pane", [tab.id for tab in TABS])
async def test_from_every_pane_a_digit_opens_the_tab_that_stands_beside_it(run_app, pane):
    async with run_app(size=(80, 24)) as (app, pilot):
        for tab in TABS:
            await pilot.press(DIGITS[pane])
            await until(pilot, lambda: app.main.detail.tab == pane and not app.main.detail.going_in)
            row = app.main.query_one(TabBar).render().plain
            digit = next(digit for digit, title in re.findall(r"(\d) ?(\w+)", row) if tab.title.startswith(title[:3]))
            await pilot.press(digit)
            await until(pilot, lambda tab=tab: app.main.detail.tab == tab.id)
            if tab.id == "shell":  # it opens none by a digit
                assert app.main.detail.shells.open_count == 0


PAGES = {
    "the list": (), "the filter": ("slash",), "a tab": ("4",), "the form": ("n",), "a question": ("x",),
    "the help": ("question_mark",), "the audit log": ("colon", *"audit", "enter"), "why": ("exclamation_mark",),
    "the timeline": ("semicolon",), "the recordings": ("quotation_mark",), "the palette": ("ctrl+p",),
}  # fmt: skip


@pytest.mark.parametrize("keys", PAGES.values(), ids=PAGES)
async def test_ctrl_c_shows_no_markup_anywhere(run_app, keys):
    async with run_app() as (app, pilot):
        app.main.select(ref(AGENT))
        await pilot.press(*keys)
        await until(pilot, lambda: not app.typing_waits)
        for _ in range(2):
            await pilot.press("ctrl+c")
            await pilot.pause(0.1)
            assert not re.search(r"\[/?b\]", screen_text(app)), screen_text(app)
        assert app.is_running
        assert not [text for _, _, text in app.message_log if "[b]" in text]


@pytest.mark.parametrize("answer", ["escape", "enter"])
@pytest.mark.parametrize("keys", [("l", "ctrl+s"), ("n", "f4")], ids=["a log", "a spec"])
async def test_a_save_asks_where_and_without_a_place_saves_nothing(run_app, keys, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(folder := tmp_path / "cwd")
    async with run_app() as (app, pilot):
        await until(pilot, lambda: app.main.detail.logs.view.total == 9)
        await pilot.press(keys[0])
        await until(pilot, lambda: isinstance(app.screen, FormScreen) or keys[0] == "l")
        await pilot.press(keys[1])
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        line = app.screen.query_one(Input)
        assert line.value.startswith(f"{folder}/"), "a place is offered"
        assert list(folder.iterdir()) == []
        if answer == "enter":
            line.value = ""
        await pilot.press(answer)
        await until(pilot, lambda: not isinstance(app.screen, AskScreen))
        await pilot.pause(0.2)
        assert list(folder.iterdir()) == []
        assert not [text for _, _, text in app.message_log if "saved" in text.lower()]


async def test_a_download_asks_where_and_without_a_place_saves_nothing(run_app, tmp_path, monkeypatch):
    monkeypatch.chdir(folder := tmp_path / "cwd")
    fake = FakeBackend(fleet(), within=Within(files={AGENT: {"/note": b"x"}}), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await pilot.press("6")
        await until(pilot, lambda: "note" in screen_text(app) and app.focused and app.focused.id == "files-table")
        app.main.query_one("#files-table", FleetTable).move_to("note")
        await pilot.press("D")
        line = app.main.query_one("#files-input", Input)
        await until(pilot, lambda: app.focused is line)
        assert line.value == f"{folder}/note"
        line.value = ""
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is not line)
        assert list(folder.iterdir()) == []
        await pilot.press("D")
        await until(pilot, lambda: app.focused is line)
        await pilot.press("enter")
        await until(pilot, lambda: [file.name for file in folder.iterdir()] == ["note"])


@pytest.fixture(autouse=True)
def _folder(tmp_path):
    (tmp_path / "cwd").mkdir()
