"""What is drawn again for a key or a note: the lines that change, which leave the picture that all lines leave."""

from __future__ import annotations

import random

from textual.geometry import Region

from sandbox_console.tui.widgets.log.log_view import LogView


def lines_of(chops, y):
    return [strip for strip in chops[y].values() if strip is not None]


async def test_rows_are_drawn_without_the_lines_of_widgets_elsewhere(run_app):
    async with run_app() as (app, _):
        drawn = list(app.screen._compositor._get_renders(Region(0, 5, 10, 2)))
        assert drawn
        assert all(len(strips) <= 2 for _, _, strips in drawn)


async def test_any_rows_are_drawn_as_the_whole_screen_has_them(run_app):
    rng = random.Random(5)
    async with run_app() as (app, pilot):
        await pilot.press("question_mark")
        for screen in (app.main, app.screen):
            compositor = screen._compositor
            whole = compositor._render_chops(compositor.size.region, lambda y: True)
            for _ in range(30):
                top = rng.randrange(compositor.size.height)
                crop = Region(0, top, compositor.size.width, rng.randrange(1, compositor.size.height - top + 1))
                part = compositor._render_chops(crop, crop.line_range.__contains__)
                assert all(lines_of(part, y) == lines_of(whole, y) for y in crop.line_range)


async def test_a_note_about_the_stream_draws_only_the_last_row_of_a_log(run_app):
    async with run_app() as (app, pilot):
        await pilot.pause()
        view = app.main.query_one(LogView)
        view._exchange_repaint_regions()
        view.note_stream("another word", open=True)
        regions = view._exchange_repaint_regions()
        assert [(region.y, region.height) for region in regions] == [(view.size.height - 1, 1)]
