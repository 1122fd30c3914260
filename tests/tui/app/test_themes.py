"""Themes: readable, and never needed to tell one state from another."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import NOW, sandbox, screen_text, until
from textual.color import Color
from textual.filter import ANSIToTruecolor, Monochrome

from sandbox_console.model.sandbox import HealthState, Status
from sandbox_console.service.config import Config, TuiOptions
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.base.themes import CONTRAST, DARK, LIGHT, MONOCHROME, THEMES, after
from sandbox_console.tui.bulk.results_screen import SIGNS
from sandbox_console.tui.text.formatting import HEALTH, STATUS


def named(theme):
    return Config(backend="fake", tui=TuiOptions(theme=theme))


def contrast(one, other):
    bright, dark = sorted((_luminance(Color.parse(c)) for c in (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color):
    """Relative luminance as WCAG defines it."""
    parts = [part / 255 for part in color.rgb]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_words_are_readable_on_every_ground(theme):
    least = 7.0 if theme is CONTRAST else 4.5
    for ground in (theme.background, theme.surface, theme.panel):
        for words in (theme.foreground, theme.variables["dim"], theme.primary):
            assert contrast(words, ground) >= least, (theme.name, words, ground)


def test_every_state_has_a_sign_or_a_word_of_its_own():
    assert len({f"{glyph} {status}" for status, (glyph, _) in STATUS.items()}) == len(Status)
    assert set(STATUS) == set(Status)
    assert set(HEALTH) == set(HealthState)
    assert len({f"{sign} {fate}" for fate, (sign, _) in SIGNS.items()}) == len(SIGNS)


@pytest.mark.parametrize("theme", [MONOCHROME.name, DARK.name])
async def test_states_are_told_apart_without_colours(run_app, theme):
    """Every colour is made the same grey, as a terminal without colours shows it: the texts still differ."""
    rows = [sandbox(f"{at:012x}", "same", status) for at, status in enumerate(Status)]
    async with run_app(FakeBackend(rows, clock=lambda: NOW), config=named(theme)) as (app, pilot):
        await until(pilot, lambda: len(app.main.table.rows) == len(Status))
        app.main.table.action_go(-1)
        await pilot.press("space", "g")
        await pilot.pause()
        drawn = [app.main.table.render_line(y + 1).text.rstrip() for y in range(len(Status))]
        assert len({line[3:15] for line in drawn}) == len(Status), "each state by its text alone"
        assert drawn[0].startswith("▸"), "the cursor has a sign"
        assert "✓" in drawn[-1][:3], "and so has a mark"


async def test_the_monochrome_theme_draws_greys_only(run_app):
    async with run_app(config=named(MONOCHROME.name)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await pilot.press("space")
        colours = {
            colour.get_truecolor()
            for line in app.screen._compositor.render_strips()
            for segment in line
            if segment.style
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None
        }
        assert colours
        assert [c for c in colours if max(c) - min(c) > 2] == []


async def test_no_color_is_honoured(run_app, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with run_app() as (app, _):
        kinds = [type(one) for one in app._filters]
        assert Monochrome in kinds or ANSIToTruecolor in kinds
        assert app.no_color


async def test_the_theme_is_changed_and_an_unknown_one_is_told(run_app):
    assert after(DARK.name) is LIGHT
    assert after("nord") is DARK
    assert [after(theme.name) for theme in THEMES] == [*THEMES[1:], THEMES[0]]
    async with run_app(config=named("no-such")) as (app, pilot):
        await until(pilot, lambda: "There is no theme 'no-such'" in " ".join(screen_text(app).split()))
        assert app.theme == DARK.name
        await app.run_action("app.next_theme")
        assert app.theme == LIGHT.name
        await app.run_action("app.use_theme('sandbox-console-contrast')")
        assert app.theme == CONTRAST.name
