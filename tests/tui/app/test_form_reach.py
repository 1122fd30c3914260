"""A sandbox is made and edited with the keyboard alone, and every field is reached by it, in view."""

from __future__ import annotations

from tests.tui.app.scene import screen_text, until
from tests.tui.app.test_flows import on
from tests.tui.app.test_form import in_view
from textual.widgets import Button, Input
from textual.widgets._collapsible import CollapsibleTitle

from sandbox_console.model.spec_fields import FIELDS
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.form.form_rows import FormRow
from sandbox_console.tui.form.form_screen import FormScreen

ALL = {field.name for field in FIELDS}


def field_in_focus(app):
    focused = app.focused
    row = next((node for node in focused.ancestors if isinstance(node, FormRow)), None) if focused else None
    return row.field.name if row else ""


async def test_with_the_keyboard_alone(run_app):
    fake = FakeBackend()
    async with run_app(fake, size=(80, 24), ready=False) as (app, pilot):
        app.animation_level = "none"  # each step of a scroll would be drawn
        await until(pilot, lambda: "No sandboxes" in screen_text(app))
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await pilot.press("shift+tab", "up", "shift+tab")
        assert isinstance(app.focused, CollapsibleTitle)  # not the button at the other end
        await pilot.press("down")
        await pilot.press(*"web")
        reached = await through_the_form(app, pilot)
        assert reached == ALL
        app.screen.query_one("#field-name", Input).focus()
        await pilot.press("down", "down", *"python:3.12", "ctrl+s")
        await until(pilot, lambda: app.screen is app.main and fake.sandboxes)
        await pilot.resize_terminal(200, 50)
        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        assert await through_the_form(app, pilot) == ALL
        while field_in_focus(app) != "memory_mib":
            await pilot.press("up")
        await pilot.press(*"512M", "ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.main)
        [made] = fake.sandboxes.values()
        assert (made.spec.name, made.spec.image, made.spec.memory_mib) == ("web", "python:3.12", 512)


async def through_the_form(app, pilot):
    """Go down through the form to its buttons, opening each section. Returns the fields that had the focus, in view."""
    reached = set()
    for _ in range(80):
        await pilot.pause()
        if name := field_in_focus(app):
            assert in_view(app, app.focused), f"{name} has the focus out of view"
            reached.add(name)
        if isinstance(app.focused, CollapsibleTitle) and app.focused.collapsed:
            await pilot.press("enter")
        if isinstance(app.focused, Button) and app.focused.id == "submit":
            return reached
        await pilot.press("down")
    raise AssertionError(f"the buttons were not reached, only {reached}")
