"""Which lines of the table are drawn when other rows come, and that what stands there is right."""

from __future__ import annotations

import random

from textual.app import App

from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column


class Told(FleetTable):
    """Remembers which of its lines were drawn."""

    def __init__(self):
        super().__init__([Column("name", "NAME", 20, 20, priority=0)])
        self.drawn = set()

    def render_line(self, y):
        self.drawn.add(y)
        return super().render_line(y)


class Fleet(App):
    def compose(self):
        yield Told()


def rows(names):
    return [Row(name, (name,)) for name in names]


def on_screen(app):
    lines = ["".join(segment.text for segment in line) for line in app.screen._compositor.render_strips()]
    return [line.strip(" ▁▂▃▄▅▆▇█▸").split(" ")[0] for line in lines]


async def test_lines_that_stay_the_same_are_not_drawn_when_rows_further_down_go():
    app = Fleet()
    async with app.run_test(size=(40, 12)) as pilot:
        table = app.query_one(Told)
        table.set_rows(rows(f"a{at}" for at in range(500)))
        await pilot.pause()
        table.drawn.clear()
        table.set_rows(rows(f"a{at}" for at in range(100)))
        await pilot.pause()
        assert not table.drawn
        table.set_rows(rows(["a0", "a1", "b", *(f"a{at}" for at in range(3, 90))]))
        await pilot.pause()
        assert table.drawn == {3}


async def test_what_is_on_the_screen_is_what_the_rows_say_whatever_came_before():
    app, rng = Fleet(), random.Random(5)
    async with app.run_test(size=(40, 12)) as pilot:
        table = app.query_one(Told)
        for _ in range(40):
            start = rng.randrange(30)
            names = [f"a{at}" for at in range(start, start + rng.choice((0, 3, 11, 12, 40, 200)))]
            table.set_rows(rows(names))
            for _ in range(rng.randrange(3)):
                rng.choice((table.action_move, table.action_page, table.action_go))(rng.choice((-1, 0)))
            await pilot.pause()
            top = table.scroll_offset.y
            assert on_screen(app)[1:] == [*names[top : top + 11], *[""] * 11][:11]
            assert table.cursor_key in names or not names
