"""Marks: set by keys and clicks, kept by sandbox, counted, and used by what takes several."""

from __future__ import annotations

from tests.tui.app.scene import ref, sandbox, screen_text, until

from sandbox_console.model.event import Changed, Removed
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.logs.logs_tab import LogsPane
from sandbox_console.tui.widgets.table.row_marks import Marks


def marked(app):
    return [one.name for one in app.main.marked]


def lines_with(app, text):
    return [line for line in screen_text(app).splitlines() if text in line]


def test_a_range_begins_where_was_marked_last():
    marks = Marks()
    marks.range_to("b", [*"abcdef"])
    assert marks.keys == ("b",)
    marks.range_to("e", [*"abcdef"])
    assert marks.keys == ("b", "c", "d", "e")
    marks.toggle("a")
    marks.range_to("f", [*"fa"])
    assert set(marks.keys) == set("abcdef")
    marks.toggle("c")
    assert "c" not in marks
    assert marks.retain([*"xyz"])
    assert not marks
    marks.range_to("z", [*"xyz"])
    assert marks.keys == ("z",), "where it began is not there any more"


async def test_space_marks_with_a_sign_and_a_count(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("space", "j", "space")
        assert len(marked(app)) == 2
        assert "✓ 2 marked" in screen_text(app)
        assert all("✓" in lines_with(app, name)[0] for name in marked(app))
        await pilot.press("space")
        assert "✓ 1 marked" in screen_text(app)
        await pilot.press("escape")
        assert marked(app) == []
        assert "✓" not in screen_text(app)


async def test_a_range_all_and_steps(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("space", "j", "j", "ctrl+@")
        assert len(marked(app)) == 3
        await pilot.press("ctrl+backslash", "asterisk")
        assert len(marked(app)) == 6
        await pilot.press("escape", "g", "shift+down", "shift+down")
        assert len(marked(app)) == 3


async def test_marks_stay_with_their_sandboxes(run_app, fake):
    async with run_app() as (app, pilot):
        app.main.table.move_to(ref("cccccccccccc"))
        await pilot.press("space")
        app.main.table.move_to(ref("bbbbbbbbbbbb"))
        await pilot.press("space", "N", "N")
        assert marked(app) == ["crashed", "builder"]
        await fake.tell(Changed(sandbox("abababababab", "newcomer")))
        await until(pilot, lambda: "newcomer" in screen_text(app))
        assert marked(app) == ["crashed", "builder"]
        await fake.tell(Removed(ref("cccccccccccc")))
        await until(pilot, lambda: marked(app) == ["builder"])
        assert "✓ 1 marked" in screen_text(app)


async def test_all_marks_what_the_filter_shows_and_the_hidden_are_counted(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("slash", *"agent", "enter", "asterisk")
        assert marked(app) == ["agent"]
        app.main.query_one("#filter").value = "builder"
        await until(pilot, lambda: "of them hidden" in screen_text(app))
        assert "1 of them hidden" in screen_text(app)


async def test_the_mouse_marks_and_opens_the_menu(run_app):
    async with run_app() as (app, pilot):
        await pilot.click("#fleet", offset=(10, 1), control=True)
        await pilot.click("#fleet", offset=(10, 3), shift=True)
        assert len(marked(app)) == 3
        await pilot.click("#fleet", offset=(10, 2), control=True)
        assert len(marked(app)) == 2
        await pilot.click("#fleet", offset=(10, 2), button=3)
        await until(pilot, lambda: isinstance(app.screen, MenuScreen))
        assert "2 sandboxes marked" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        await pilot.press("escape")
        await pilot.click("#fleet", offset=(10, 4), button=3)
        await until(pilot, lambda: isinstance(app.screen, MenuScreen))
        assert app.main.selected.name in screen_text(app)


async def test_two_marked_are_compared_and_marked_logs_are_merged(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("space", "j", "space", "equals_sign")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert "Differs" in screen_text(app)
        await pilot.press("escape", "L")
        pane = app.main.query_one(LogsPane)
        await until(pilot, lambda: pane.merged)
        await until(pilot, lambda: "2 marked" in screen_text(app))
