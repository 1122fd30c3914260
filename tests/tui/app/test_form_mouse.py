"""A sandbox is made and edited with the mouse alone: the wheel and clicks reach every field."""

from __future__ import annotations

from tests.tui.app.scene import screen_text, until
from tests.tui.app.test_flows import on
from textual.events import MouseScrollDown, MouseScrollUp
from textual.widgets._collapsible import CollapsibleTitle
from textual.widgets._footer import FooterKey

from sandbox_console.model.spec_fields import FIELDS
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.form.entry_list import EntryList
from sandbox_console.tui.form.form_body import FormBody
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.form.form_section import FormSection


async def test_with_the_mouse_alone(run_app):
    fake = FakeBackend()
    async with run_app(fake, size=(80, 24), ready=False) as (app, pilot):
        app.animation_level = "none"  # each step of a scroll would be drawn
        await until(pilot, lambda: "No sandboxes" in screen_text(app))
        await click_key(app, pilot, "create")
        await until(pilot, on(app, FormScreen))
        await click_field(app, pilot, "name")
        await pilot.press(*"web")
        await click_field(app, pilot, "image")
        await pilot.press(*"python:3.12")
        await every_field(app, pilot)
        await click_until(pilot, "#submit", lambda: app.screen is app.main and fake.sandboxes)
        await pilot.resize_terminal(200, 50)
        await pilot.click("#fleet", offset=(10, 1), button=3)
        await until(pilot, on(app, MenuScreen))
        await click_choice(app, pilot, "Edit")
        await until(pilot, on(app, FormScreen))
        await every_field(app, pilot)
        await click_field(app, pilot, "memory_mib")
        await pilot.press(*"512M")
        await until(pilot, lambda: "→ 512M" in screen_text(app))
        await click_until(pilot, "#submit", on(app, ConfirmScreen))
        await pilot.click("#agree")
        await until(pilot, lambda: app.screen is app.main)
        [made] = fake.sandboxes.values()
        assert (made.spec.name, made.spec.image, made.spec.memory_mib) == ("web", "python:3.12", 512)


async def every_field(app, pilot):
    for section in app.screen.query(FormSection):
        if section.collapsed:
            title = section.query_one(CollapsibleTitle)
            await scroll_to(app, pilot, title)
            await click_until(pilot, title, lambda section=section: not section.collapsed)
    for name in [field.name for field in FIELDS]:
        await click_field(app, pilot, name)


async def click_field(app, pilot, name):
    widget = app.screen.query_one(f"#field-{name}")
    if isinstance(widget, EntryList) and widget.has_class("-empty"):  # no secret is defined yet
        await scroll_to(app, pilot, app.screen.query_one("#new-secret"))
        return
    await scroll_to(app, pilot, widget)
    was = getattr(widget, "value", None)
    await click_until(pilot, widget, lambda: app.focused is widget)
    if isinstance(was, bool) and widget.value is not was:  # it was ticked by that
        await scroll_to(app, pilot, widget)
        await click_until(pilot, widget, lambda: widget.value is was)


async def click_until(pilot, widget, done):
    """Click, and again if it moved meanwhile: a list of images that closes, or a plan that opens, moves what is below."""
    for _ in range(20):
        await pilot.click(widget, offset=(1, 0))
        for _ in range(15):
            await pilot.pause()
            if done():
                return
    raise AssertionError(f"a click on {widget} does nothing")


async def scroll_to(app, pilot, widget):
    """Turn the wheel over the fields until a widget is in view, as a person does."""
    body = app.screen.query_one(FormBody)
    for _ in range(100):
        await pilot.pause()
        top, bottom = widget.region.y, widget.region.bottom
        if widget.region.height and body.region.y <= top and bottom <= body.region.bottom:
            return
        kind = MouseScrollUp if widget.region.y < body.region.y else MouseScrollDown
        x, y = body.region.center
        body.post_message(kind(body, int(x), int(y), 0, 0, 0, False, False, False))
    raise AssertionError(f"{widget.id} is not reached by the wheel")


async def click_key(app, pilot, action):
    await until(pilot, lambda: any(key.action == action for key in app.screen.query(FooterKey)))
    await pilot.click(next(key for key in app.screen.query(FooterKey) if key.action == action))


async def click_choice(app, pilot, label):
    rows = app.screen.query_one("OptionList")
    at = next(index for index in range(rows.option_count) if label in str(rows.get_option_at_index(index).prompt))
    rows.scroll_to(y=max(0, at - 3), animate=False)
    await pilot.pause()
    await pilot.click(rows, offset=(4, at - int(rows.scroll_y)))
