"""Nothing of the form is cut at any size, and what is wrong with it is one key or click away, in view."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import screen_text, until
from tests.tui.app.test_flows import on
from tests.tui.app.test_form import in_view
from textual.widgets import Checkbox, Input

from sandbox_console.tui.base import touch
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.form.form_section import FormSection
from sandbox_console.tui.form.secret_dialog import SecretScreen

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=str)
WRONG = {"name": "bad name!", "cpus": "0", "env": "1x=2", "workdir": "srv", "max_duration_s": "-1"}


def cut(screen):
    """The boxes and the hints of lines that are longer than the room that they have."""
    boxes = [box for box in screen.query(Checkbox) if not box.parent.region.contains_region(box.region)]
    lines = [line for line in screen.query(Input) if len(line.placeholder) > line.content_size.width > 0]
    return [str(one.id) for one in (*boxes, *lines)]


async def opened(app, pilot):
    await pilot.press("n")
    await until(pilot, on(app, FormScreen))
    for section in app.screen.query(FormSection):
        section.collapsed = False
    await pilot.pause()


def seen(app, name):
    """Whether a field has the focus, and its text is on the screen."""
    line, rows = app.focused, screen_text(app).splitlines()
    return bool(line) and line.id == f"field-{name}" and WRONG[name] in rows[line.region.y]


async def fill_badly(app, pilot):
    await pilot.press("n")
    await until(pilot, on(app, FormScreen))
    for name, text in WRONG.items():
        app.screen.query_one(f"#field-{name}", Input).value = text
    app.screen.query_one("#submit").focus()
    await pilot.press("ctrl+s")
    await until(pilot, lambda: "to fix: Name, CPUs, Folder, Variables" in " ".join(screen_text(app).split()))


@SIZES
async def test_no_label_or_hint_is_cut(run_app, size):
    async with run_app(size=size) as (app, pilot):
        await opened(app, pilot)
        assert cut(app.screen) == []
        await pilot.press("f7")
        await until(pilot, on(app, SecretScreen))
        await pilot.press("down", "right", "right")
        await pilot.pause()
        assert cut(app.screen) == []


@SIZES
async def test_the_first_problem_is_in_view_after_the_sections_have_unfolded(run_app, size):
    async with run_app(size=size) as (app, pilot):
        await fill_badly(app, pilot)
        for name in ("name", "cpus", "workdir", "env", "max_duration_s"):
            await until(pilot, lambda name=name: seen(app, name))
            await pilot.press("f3")
        await until(pilot, lambda: seen(app, "name"))


@SIZES
async def test_a_click_on_a_field_in_the_list_of_problems_goes_to_it(run_app, size):
    async with run_app(size=size) as (app, pilot):
        await fill_badly(app, pilot)
        await until(pilot, lambda: app.focused and app.focused.id == "field-name")
        for section in app.screen.query(FormSection):
            section.collapsed = True
        await pilot.pause()
        while not seen(app, "env"):  # the list moves while the sections fold
            rows = screen_text(app).splitlines()
            y = next(
                at for at, row in enumerate(rows) if "to fix:" in row or ("Variables" in row and at > len(rows) - 5)
            )
            y, x = next((at, row.index("Variables")) for at, row in enumerate(rows) if at >= y and "Variables" in row)
            await pilot.click(offset=(x + 2, y))
            await pilot.pause(0.2)


@SIZES
async def test_the_answers_to_the_question_before_an_edit_are_in_view(run_app, size):
    async with run_app(size=size) as (app, pilot):
        await pilot.press("slash", *"agent", "enter", "escape", "e")
        await until(pilot, on(app, FormScreen))
        values = {"image": "python:3.13", "labels": "a=b", "command": "sh -c 'echo one; echo two; sleep 1000'"}
        for name, text in values.items():
            app.screen.query_one(f"#field-{name}", Input).value = text
        await until(pilot, lambda: "↻ recreate" in screen_text(app))
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        await until(pilot, lambda: "Recreated:" in str(app.screen.query_one("#listed Static").content))
        for name in ("cancel", "agree"):
            assert in_view(app, app.screen.query_one(f"#{name}")), name
        assert app.focused.id == "cancel"


async def test_the_buttons_stay_below_the_fields_when_sections_fold_and_the_screen_grows(run_app):
    def gap(app):
        """Rows between the last section and the bar with the buttons; one is the help of the field."""
        return app.screen.query_one("#form-bar").region.y - app.screen.query(FormSection).last().region.bottom

    async with run_app(size=(80, 50)) as (app, pilot):
        await opened(app, pilot)
        await until(pilot, lambda: gap(app) <= 3)
        app.screen.query(FormSection).first().collapsed = True
        await until(pilot, lambda: gap(app) <= 3)
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: gap(app) <= 3)


async def test_on_a_phone_every_line_to_touch_has_44_pixels(run_app, monkeypatch):
    monkeypatch.setenv(touch.VARIABLE, "1")
    async with run_app(size=(43, 36)) as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        kinds = "FormSection CollapsibleTitle, FormBody Input, FormBody Select, FormBody Checkbox, Button"
        lines = [one for one in app.screen.query(kinds) if one.region.height]
        assert len(lines) > 10
        assert [(one, one.region.height) for one in lines if one.region.height < touch.LINES] == []
