"""How the list looks in groups, filtered, wrong, empty, at three sizes."""

from __future__ import annotations

import pytest
from pytest_textual_snapshot import SVGImageExtension
from tests.tui.app.scene import screen_text, until
from textual.widgets import Input

from sandbox_console.tui.groups import GroupKey
from sandbox_console.tui.screens.columns import ColumnsScreen

sizes = pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])


@pytest.fixture
def looks(snapshot):
    async def check(app, pilot):
        for widget in app.screen.query(Input):
            widget.cursor_blink = False
        await pilot.pause(0.1)
        assert snapshot.use_extension(SVGImageExtension) == app.export_screenshot(title="sandbox-console")

    return check


async def settled(app, pilot):
    """Until what is measured is there, and the detail shows a tab that does not move."""
    await until(pilot, lambda: len(app.fleet.stats) == 3)
    if app.main.has_class("-wide"):
        await pilot.press("9")
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is app.main.table)
        await until(pilot, lambda: "Nothing is on record" in screen_text(app))


@sizes
async def test_grouped(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await settled(app, pilot)
        app.main.fleet.set_group("state")
        await until(pilot, lambda: any(row.head for row in app.main.table.rows))
        app.main.fleet.fold(GroupKey("state", "lost"))
        await until(pilot, lambda: "▸ lost" in screen_text(app))
        await looks(app, pilot)


@sizes
async def test_faults_and_filter(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await settled(app, pilot)
        await pilot.press("z", "a", "slash", *"exit>3")
        await until(pilot, lambda: "1 of 6" in screen_text(app))
        await looks(app, pilot)


@sizes
async def test_filter_error(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await settled(app, pilot)
        await pilot.press("slash")
        app.main.fleet.filter_line.input.value = "exit>3 stat=exited"
        await until(pilot, lambda: "did you mean state?" in screen_text(app))
        await looks(app, pilot)


@sizes
async def test_nothing_left(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await settled(app, pilot)
        await pilot.press("z")
        app.main.fleet.set_filter("nowhere")
        await until(pilot, lambda: "Nothing matches" in screen_text(app))
        await looks(app, pilot)


@sizes
async def test_command_refused(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await settled(app, pilot)
        await pilot.press("colon", *"exitd", "enter")
        await until(pilot, lambda: "did you mean :exited?" in screen_text(app))
        await looks(app, pilot)


@sizes
async def test_columns(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await settled(app, pilot)
        await pilot.press("comma")
        await until(pilot, lambda: isinstance(app.screen, ColumnsScreen))
        await looks(app, pilot)
