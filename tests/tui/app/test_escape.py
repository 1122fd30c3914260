"""Esc closes what was opened last, wherever the keys are."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import screen_text, until
from textual.command import CommandPalette
from textual.widgets import Input

from sandbox_console.tui.audit.audit_screen import AuditScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.egress.inbox_screen import EgressScreen
from sandbox_console.tui.images.images_screen import ImagesScreen


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_one_step_at_a_time_out_of_all_that_can_be_open(run_app, size):
    async with run_app(size=size) as (app, pilot):
        main, detail = app.main, app.main.detail
        await pilot.press("slash", *"agent", "enter", "space", "l")
        await until(pilot, lambda: detail.has_focus_within)
        await until(pilot, lambda: detail.query_one("#logs").view.total)
        view = detail.query_one("#logs").view
        await pilot.press("slash", *"step", "enter")
        await until(pilot, lambda: view.patterns.search == "step")
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is main)
        assert view.patterns.search == "step"
        await pilot.press("escape")
        assert view.patterns.search is None
        assert detail.has_focus_within
        await pilot.press("escape")
        await until(pilot, lambda: main.table.has_focus)
        assert main.table.marks
        assert "agent" in main.fleet.filter_line.input.value
        await pilot.press("escape")
        assert not main.table.marks
        assert main.fleet.shown
        await pilot.press("escape")
        await until(pilot, lambda: not main.fleet.shown)
        await pilot.press("escape")
        assert app.is_running
        assert main.table.has_focus


@pytest.mark.parametrize(("tab", "line", "inside"), [
    ("logs", "slash", "LogView"), ("inspect", "slash", "#inspect-tree"), ("files", "P", "#files-table"),
])  # fmt: skip
async def test_a_line_that_is_asked_for_closes_before_its_tab_also_where_a_click_took_the_keys(
    run_app, tab, line, inside
):
    async with run_app() as (app, pilot):
        app.main.action_tab(tab)
        await until(pilot, lambda: not app.main.detail.going_in and app.main.detail.has_focus_within)
        await pilot.press(line)
        await until(pilot, lambda: isinstance(app.focused, Input))
        asked = app.focused
        app.set_focus(app.main.query_one(inside))
        await pilot.pause()
        await pilot.press("escape")
        await until(pilot, lambda: not asked.has_class("-asking"))
        assert app.main.detail.has_focus_within
        await pilot.press("escape")
        await until(pilot, lambda: app.main.table.has_focus)


@pytest.mark.parametrize(("key", "page"), [("h", AuditScreen), ("i", EgressScreen), ("P", ImagesScreen)])
async def test_help_and_palette_over_a_page_close_before_it(run_app, key, page):
    async with run_app() as (app, pilot):
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, page))
        for over, opened in (("question_mark", TextScreen), ("ctrl+p", CommandPalette)):
            await pilot.press(over)
            await until(pilot, lambda opened=opened: isinstance(app.screen, opened))
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, page))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_a_question_closes_and_leaves_the_filter_and_the_marks(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("slash", *"agent", "enter", "space", "x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert app.main.table.marks
        assert app.main.fleet.shown
        assert "agent" in screen_text(app)
