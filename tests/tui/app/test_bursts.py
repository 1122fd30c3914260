"""Keys in one burst do what they do when typed slowly: they wait for what opens, and questions do not stack."""

from __future__ import annotations

import random

import pytest
from tests.tui.app.scene import until
from textual import events
from textual.command import CommandList, CommandPalette

from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.main.dispatch import menu


def burst(app, *keys):
    """All keys at once, as a terminal delivers what was typed while the app was busy."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


async def settled(app, pilot):
    await until(pilot, lambda: not app.typing_waits and not app._typed)
    await pilot.pause()


@pytest.mark.parametrize("keys", [("x", "r", "enter"), ("x", "r", "x", "r"), ("r", "x", "enter", "enter")])
async def test_questions_do_not_stack(run_app, keys):
    async with run_app() as (app, pilot):
        burst(app, *keys)
        await settled(app, pilot)
        assert sum(isinstance(screen, ConfirmScreen) for screen in app.screen_stack) <= 1


async def test_an_answer_typed_ahead_answers(run_app, fake):
    async with run_app() as (app, pilot):
        running = app.main.selected
        burst(app, "x", "y")
        await until(pilot, lambda: app.fleet.sandboxes[running.ref].status != running.status)


async def test_a_page_that_is_closed_twice_takes_no_other_with_it(run_app):
    async with run_app() as (app, pilot):
        app.action_command_palette()
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        palette = app.screen
        palette.dismiss()
        palette.dismiss()  # two clicks beside it, of which the second was on its way when the first closed it
        await settled(app, pilot)
        assert app.screen is app.main


async def test_the_palette_opens_while_one_closes_and_over_no_question(run_app):
    async with run_app() as (app, pilot):
        app.action_command_palette()
        await until(pilot, lambda: isinstance(app.screen, CommandPalette) and app.screen.query(CommandList))
        app.screen.dismiss()
        app.action_command_palette()  # the first is not gone yet
        await until(pilot, lambda: isinstance(app.screen, CommandPalette) and app.screen.query(CommandList))
        app.screen.dismiss()
        await settled(app, pilot)
        burst(app, "x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        app.action_command_palette()
        assert isinstance(app.screen, ConfirmScreen)


async def test_clicks_in_a_burst_open_one_menu(run_app):
    async with run_app() as (app, pilot):
        for _ in range(4):
            app.main.run_worker(menu(app.main))
        await until(pilot, lambda: isinstance(app.screen, MenuScreen))
        await settled(app, pilot)
        assert [type(screen) for screen in app.screen_stack[2:]] == [MenuScreen]


async def test_what_is_typed_ahead_of_a_form_goes_into_it(run_app):
    async with run_app() as (app, pilot):
        burst(app, "n", *"webby")
        await until(pilot, lambda: isinstance(app.screen, FormScreen) and app.focused is not None)
        await settled(app, pilot)
        assert "webby" in getattr(app.focused, "value", "")


async def test_random_bursts_leave_the_app_running(run_app):
    words = random.Random(7)
    keys = [
        "x",
        "r",
        "enter",
        "escape",
        "y",
        "n",
        "down",
        "up",
        "m",
        "slash",
        "colon",
        "l",
        "s",
        "q",
        "space",
        "i",
        "h",
        "tab",
    ]
    async with run_app() as (app, pilot):
        for _ in range(60):
            burst(app, *(words.choice(keys) for _ in range(6)))
            await settled(app, pilot)
            assert app._exception is None
            while len(app.screen_stack) > 2:
                app.pop_screen()
