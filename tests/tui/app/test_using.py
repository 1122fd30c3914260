"""What a person does in a hurry: keys faster than what they lead to, a terminal that changes, sandboxes that go."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.tui.app.scene import ref, screen_text, until
from textual import events

from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.sandbox import BackendHealth, HealthState
from sandbox_console.tui.detail.tab_bar import TABS
from sandbox_console.tui.fleet.arrangement import Hidden, ListOptions
from sandbox_console.tui.fleet.command_parser import COMMANDS
from sandbox_console.tui.fleet.groups import GroupKey
from sandbox_console.tui.fleet.header import backends_line, view_line
from sandbox_console.tui.logs.logs_tab import LogsPane

AGENT, BUILDER = ref("aaaaaaaaaaaa"), ref("bbbbbbbbbbbb")


async def test_a_log_is_never_taken_for_that_of_a_sandbox_that_was_passed_on_another_tab(run_app):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        await pilot.press("5", "escape")
        for _ in range(2):
            await pilot.press("j")
            await until(pilot, lambda: app.main.query_one(LogsPane)._sandbox.ref == app.main.selected.ref)
        await pilot.press("k")
        await until(pilot, lambda: app.main.query_one(LogsPane)._sandbox.ref == BUILDER)
        await pilot.press("l")
        await until(pilot, lambda: "builder" in screen_text(app).split("WHY")[1].split("1 Logs")[0])
        await until(pilot, lambda: "[0/0]" in screen_text(app))
        assert "step" not in screen_text(app)


async def test_space_and_enter_close_and_open_a_group(run_app):
    async with run_app() as (app, pilot):
        app.main.fleet.set_group("state")
        await until(pilot, lambda: any(row.head for row in app.main.table.rows))
        app.main.table.move_to(GroupKey("state", "running"))
        for key in ("space", "enter"):
            await pilot.press(key)
            await until(pilot, lambda: "▸ running" in screen_text(app))
            assert app.main.table.cursor_key == GroupKey("state", "running")
            await pilot.press(key)
            await until(pilot, lambda: "▾ running" in screen_text(app))
        assert not app.main.table.marked


async def test_on_the_head_of_a_group_nothing_of_the_sandbox_before_stays_in_view(run_app):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        app.main.fleet.set_group("state")
        await until(pilot, lambda: any(row.head for row in app.main.table.rows))
        app.main.table.move_to(GroupKey("state", "running"))
        await until(pilot, lambda: "No sandbox is selected." in screen_text(app))
        await until(pilot, lambda: "step 8 of 9" not in screen_text(app))
        app.main.table.move_to(AGENT)
        await until(pilot, lambda: "step 8 of 9" in screen_text(app))


@pytest.mark.parametrize("start", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_tabs_opened_and_left_at_once(run_app, start):
    """Each is made when it is first looked at: another key comes before it is."""
    async with run_app(size=start) as (app, pilot):
        for _ in range(2):
            for _ in TABS:
                app.main.action_step(1)
        await pilot.pause()
        await until(pilot, lambda: app.main.detail.tab == "logs" and app.main.query_one(LogsPane).has_focus_within)
        for tab in ("inspect", "files", "processes", "spec"):
            app.main.action_tab(tab)
        await until(pilot, lambda: app.focused is not None and app.focused.id == "spec")
        app.main.action_tab("events")
        app.main.action_back()
        app.main.action_tab("audit")
        app.main.action_filter()
        await until(pilot, lambda: app.focused is app.main.fleet.filter_line.input)
        await pilot.pause(0.1)
        assert app.focused is app.main.fleet.filter_line.input, "what is typed is the filter"
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is app.main.table)
        app.main.action_tab("inspect")
        app.main.action_back()
        await until(pilot, lambda: app.focused is app.main.table)
        await pilot.pause(0.1)
        assert app.focused is app.main.table, "a pane that came late takes no keys away"


async def test_a_terminal_that_gets_small_keeps_what_is_looked_at(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("y")
        await until(pilot, lambda: app.focused is not None and app.focused.id == "spec")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "ASKED" in screen_text(app))
        assert app.focused.id == "spec"
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: "STATE" in screen_text(app) and "ASKED" in screen_text(app))
        await pilot.press("f")
        await pilot.resize_terminal(80, 24)
        await pilot.resize_terminal(130, 40)
        await until(pilot, lambda: "STATE" not in screen_text(app))


def test_the_nearest_word_counts_letters_that_changed_places_as_one_slip():
    assert nearest("hsot", COMMANDS) == "host"
    assert nearest("exitd", ["exit", "exited"]) == "exit"
    assert nearest("eg", COMMANDS) == "egress"
    assert nearest("zzzz", COMMANDS) == nearest("", COMMANDS) == ""


def test_the_header_tells_what_hides_and_where_a_reason_stands_whole():
    both = view_line(ListOptions(faults=True), Hidden(0, 0, 2), 6).plain
    assert "hidden: 2 by the filter" in both
    assert "0 by" not in both
    assert view_line(ListOptions(faults=True), Hidden(), 0).plain.strip() == "0 of 0"
    health = BackendHealth("microsandbox", "local", HealthState.UNAVAILABLE, "no guest can run here " * 9)
    assert backends_line([health], key="f9").plain.endswith("…   f9 for details")
    short = structs.replace(health, reason="no socket")
    assert "for details" not in backends_line([short], 80).plain
    narrow = backends_line([short], 32).plain
    assert narrow.endswith("b for details")
    assert len(narrow) <= 32
    for width in range(16, 100):  # whatever is cut, the key for details stays on the screen
        line = backends_line([structs.replace(short, state=HealthState.OK, backend="one"), health], width).plain
        assert len(line) <= width
        assert line.endswith(" b for details")


async def test_keys_that_come_faster_than_they_are_worked_off_are_typed_in_their_order(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("l", "slash", *"old")
        line = app.focused
        for key in ("ctrl+u", "a", "b", "backspace", "c", "left", "x"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: len(line.value) > 2)
        assert line.value == "axc"
