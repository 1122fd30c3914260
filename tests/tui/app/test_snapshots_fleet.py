"""How pulse, the question for several, its results and the help look: three sizes, two themes."""

from __future__ import annotations

import pytest
from pytest_textual_snapshot import SVGImageExtension
from tests.tui.app.scene import screen_text, until
from textual.widgets import Input

from sandbox_console.service.config import Config, TuiOptions
from sandbox_console.testing.fake import FakeBackend
from sandbox_console.tui.pulse import Total
from sandbox_console.tui.screens.bulk import BulkConfirm, BulkScreen
from sandbox_console.tui.screens.text import TextScreen
from sandbox_console.tui.themes import DARK, LIGHT, MONOCHROME

every = pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
themes = pytest.mark.parametrize("theme", [DARK.name, LIGHT.name], ids=["dark", "light"])


@pytest.fixture
def looks(snapshot):
    async def check(app, pilot):
        for widget in app.screen.query(Input):
            widget.cursor_blink = False
        await pilot.pause(0.1)
        assert snapshot.use_extension(SVGImageExtension) == app.export_screenshot(title="sandbox-console")

    return check


def config(theme):
    return Config(backend="fake", tui=TuiOptions(theme=theme, stats_interval_s=3600.0))


@every
@themes
async def test_pulse(run_app, fake, looks, size, theme):
    dead = FakeBackend(name="docker", dead=True, reason="connection refused at /run/docker.sock")
    async with run_app(fake, dead, size=size, config=config(theme)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3 and len(app.fleet.dead) == 1)
        app.history.note = lambda _: None
        app.history.totals.extend(Total(at * 3 % 250, (at % 90) * 9 << 20, 3, 3) for at in range(400))
        await pilot.press("u")
        await until(pilot, lambda: "the chain holds" in screen_text(app))
        await looks(app, pilot)


async def test_pulse_of_nothing(run_app, looks):
    async with run_app(FakeBackend(), size=(80, 24), ready=False) as (app, pilot):
        app.history.note = lambda _: None
        await until(pilot, lambda: app.fleet.health and not app.fleet.connecting)
        await pilot.press("u")
        await until(pilot, lambda: "the chain holds" in screen_text(app))
        await looks(app, pilot)


@every
@themes
async def test_bulk_confirm(run_app, looks, size, theme):
    async with run_app(size=size, config=config(theme)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        if size != (80, 24):
            await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        await pilot.press("asterisk", "ctrl+d")
        await until(pilot, lambda: isinstance(app.screen, BulkConfirm))
        await looks(app, pilot)


@every
@themes
async def test_bulk_results(run_app, looks, size, theme):
    async with run_app(size=size, config=config(theme)) as (app, pilot):
        await pilot.press("asterisk", "x")
        await until(pilot, lambda: isinstance(app.screen, BulkConfirm))
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, BulkScreen) and app.bulk.runs[-1].done)
        run = app.bulk.runs[-1]
        for item in run.items:
            item.took_s = 0.25 if item.took_s else None
        for at, item in enumerate(sorted((one for one in run.items if one.audit_id), key=lambda one: one.sandbox.name)):
            item.audit_id = at + 1
        run.version += 1
        await until(pilot, lambda: "● 2 ok" in screen_text(app))
        await looks(app, pilot)


async def test_marks_in_monochrome(run_app, looks):
    async with run_app(size=(80, 24), config=config(MONOCHROME.name)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await pilot.press("space", "j", "j", "space", "j")
        await looks(app, pilot)


@every
@themes
async def test_help(run_app, looks, size, theme):
    async with run_app(size=size, config=config(theme)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        if size != (80, 24):
            await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await looks(app, pilot)
