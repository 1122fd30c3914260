"""Keys in one burst do what they do when typed slowly: they wait for what opens, and questions do not stack."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

import pytest
from rich.style import Style
from tests.tui.app.scene import until
from textual import events
from textual.command import CommandList, CommandPalette
from textual.widgets import Input, OptionList
from textual.widgets._toast import Toast, ToastHolder

from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.tui.audit.audit_screen import AuditScreen
from sandbox_console.tui.base import type_ahead
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.egress.inbox_screen import EgressScreen
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.main.dispatch import menu
from sandbox_console.tui.widgets.log.log_view import LogView


def burst(app, *keys):
    """All keys at once, as a terminal delivers what was typed while the app was busy."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


async def settled(app, pilot):
    await until(pilot, lambda: not app.typing_waits and not app._typed)
    await pilot.pause()


async def test_a_message_that_is_shown_already_is_not_shown_a_second_time(run_app, fake):
    async with run_app() as (app, pilot):
        for words in ("other", "same", "same", "same"):
            app.notify(words)
        app.notify("same", severity="warning")
        await until(pilot, lambda: len(app.screen.query(Toast)) == 3)
        shown = [(str(toast.render()), toast.has_class("-warning")) for toast in app.screen.query(Toast)]
        assert shown == [("other", False), ("same", False), ("same", True)]
        assert [words for _, _, words in app.message_log].count("same") == 4  # the messages page has each


async def test_a_message_that_comes_again_stays_as_long_as_a_new_one(run_app):
    async with run_app() as (app, pilot):
        app.notify("same", timeout=0.5)
        await until(pilot, lambda: app.screen.query(Toast))
        app.notify("same", timeout=60)
        await until(pilot, lambda: [one.timeout for one in app._notifications] == [60])
        await asyncio.sleep(0.8)
        await pilot.pause()
        assert [str(toast.render()) for toast in app.screen.query(Toast)] == ["same"]
        assert len(app.screen.query(ToastHolder)) == 1


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


async def test_a_worker_that_another_replaces_before_it_began_holds_no_keys(run_app, monkeypatch):
    monkeypatch.setattr(type_ahead, "WAIT_S", 600.0)

    async def nothing():
        await asyncio.sleep(0)

    async with run_app() as (app, pilot):
        for _ in range(3):
            app.run_worker(nothing(), group="one", exclusive=True)
        await settled(app, pilot)


async def test_a_page_is_open_once_and_help_tells_nothing_of_itself(run_app):
    async with run_app() as (app, pilot):
        for opened in (app.action_egress, app.action_audit, app.action_egress):
            opened()
            await settled(app, pilot)
        assert [type(screen) for screen in app.screen_stack[2:]] == [EgressScreen, AuditScreen]
        for _ in range(2):
            await app.action_help()
            await settled(app, pilot)
        assert sum(isinstance(screen, TextScreen) for screen in app.screen_stack) == 1


async def test_a_form_asks_one_question_at_a_time(run_app):
    async with run_app() as (app, pilot):
        burst(app, "e")
        await until(pilot, lambda: isinstance(app.screen, FormScreen))
        await settled(app, pilot)
        form = app.screen
        burst(app, *["down"] * 3, *"abc", "enter")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        form.action_submit()  # a click that was on its way
        await settled(app, pilot)
        assert [type(screen) for screen in app.screen_stack[2:]] == [FormScreen, ConfirmScreen]


async def test_keys_that_a_field_does_not_take_end(run_app, monkeypatch):
    monkeypatch.setattr(type_ahead, "WAIT_S", 600.0)
    async with run_app() as (app, pilot):
        burst(app, "n", *["f11", "ctrl+t", "f12", "ctrl+o"] * 4, *"abc")
        await until(pilot, lambda: isinstance(app.screen, FormScreen) and app.focused is not None)
        await settled(app, pilot)
        assert app.focused.value.endswith("abc")


async def test_keys_that_are_dropped_are_told_once(run_app, monkeypatch):
    monkeypatch.setattr(type_ahead, "KEYS_MOST", 5)
    monkeypatch.setattr(type_ahead, "DROPPED_TOLD_S", 0.2)
    async with run_app() as (app, pilot):
        wait = app._wait()
        burst(app, *["down"] * 30)
        await until(pilot, lambda: app.message_log)
        assert [words for _, _, words in app.message_log] == [
            "25 keys were dropped: they came faster than what they ask for."
        ]
        app._go_on(wait)
        await settled(app, pilot)


async def test_keys_that_wait_for_a_backend_that_does_not_answer_are_told(run_app, monkeypatch):
    monkeypatch.setattr(type_ahead, "WAIT_S", 0.5)
    monkeypatch.setattr(type_ahead, "DROPPED_TOLD_S", 0.1)
    async with run_app() as (app, pilot):
        app._wait()
        burst(app, *["down"] * 3)
        await until(pilot, lambda: app.message_log)
        assert "3 keys were dropped" in app.message_log[-1][2]


async def test_a_busy_app_does_not_count_its_own_delay(run_app, monkeypatch):
    monkeypatch.setattr(type_ahead, "WAIT_S", 2.0)
    async with run_app() as (app, pilot):
        wait = app._wait()
        time.sleep(2.2)  # as if it drew something large
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert wait in app._waits
        app._go_on(wait)
        await settled(app, pilot)


async def test_enter_on_a_line_that_is_no_json_says_so(run_app, fake):
    for lines in fake._logs.values():
        lines.append(LogRecord(lines[-1].at_ns + 1, Stream.STDOUT, b"words\n"))
    async with run_app() as (app, pilot):
        burst(app, "l")
        await until(pilot, lambda: isinstance(app.focused, LogView) and app.focused._chosen is not None)
        await pilot.press("enter")
        assert "not JSON. Shift+↑ and Shift+↓ choose another." in app.message_log[-1][2]


async def test_a_click_on_an_option_that_is_gone_chooses_nothing(run_app):
    async with run_app() as (app, pilot):
        app.push_screen(MenuScreen("Menu", []))
        await settled(app, pilot)
        options = app.screen.query_one(OptionList)
        style = Style.from_meta({"option": options.option_count})
        options.post_message(events.Click(options, 0, 0, 0, 0, 1, False, False, False, 0, 0, style))
        await settled(app, pilot)
        assert app._exception is None


async def test_a_page_key_in_a_list_without_room_moves_nothing(run_app):
    async with run_app() as (app, pilot):
        app.push_screen(MenuScreen("Menu", []))
        await settled(app, pilot)
        options = app.screen.query_one(OptionList)
        options.styles.max_height = 0
        await pilot.pause()
        options.add_options(["one", "two"])
        options.highlighted = 1
        await pilot.press("pagedown", "pageup")
        assert app._exception is None


async def test_a_palette_that_is_closed_before_it_has_its_list_ends_nothing_else(run_app):
    async with run_app() as (app, pilot):
        for _ in range(3):
            app.action_command_palette()
            app.screen._gather_commands("a")
            app.screen.dismiss()
            await settled(app, pilot)
        assert app._exception is None
        assert app.screen is app.main


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


async def test_a_timer_that_runs_once_ticks_although_the_process_stood_still_as_it_began(run_app, monkeypatch):
    """Each look at the clock is a second later than the last one, and the timer is due after 8 ms."""
    seconds = itertools.count(1)
    async with run_app() as (app, pilot):
        ticked = []
        monkeypatch.setattr("textual._time.get_time", lambda: float(next(seconds)))
        app.set_timer(1 / 120, lambda: ticked.append(True))
        await until(pilot, lambda: ticked)


async def test_a_key_does_not_overtake_those_that_wait_no_more_but_are_not_delivered_yet(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(app.focused, Input))
        wait = app._wait()
        for key in "abc":
            app.post_message(events.Key(key, key))
        await until(pilot, lambda: len(app._typed) == 3)
        app.call_later(app._go_on, wait)
        for key in "de":  # they are in the queue before the delivery of what waited
            app.post_message(events.Key(key, key))
        await until(pilot, lambda: len(app.focused.value) == 5)
        assert app.focused.value == "abcde"
