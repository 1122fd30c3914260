"""A graph tells what its top, its bottom and its two sides stand for."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import NOW, sandbox, screen_text, until
from textual.app import App

from sandbox_console.model.sandbox import Status
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.detail.stats_tab import CPU, MEMORY
from sandbox_console.tui.widgets.graph import Graph


class One(App[None]):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def compose(self):
        yield self.graph


async def drawn(graph: Graph, *shown, size=(60, 20)) -> list[str]:
    async with One(graph).run_test(size=size) as pilot:
        graph.show(*shown)
        await pilot.pause()
        return [line.rstrip() for line in graph.render().plain.splitlines()]


async def test_the_axes_tell_the_top_and_how_far_back_it_goes():
    title, top, *rows, bottom, times = await drawn(Graph(CPU), [10.0, 50.0] * 15, None, 2.0)
    assert title == "CPU 50%  peak 50%"
    assert top.startswith("57% "), "a little over the highest"
    assert bottom.startswith("  0 ")
    assert rows
    oldest = min(at for at, char in enumerate(bottom) if "\u2801" <= char <= "\u28ff")
    assert times.index("58s ago") == oldest, "thirty samples, two seconds apart"
    assert times.endswith("now")


async def test_a_limit_that_is_far_above_is_named_and_nothing_more():
    title, *rows = await drawn(Graph(MEMORY), [float(3 << 20)], float(512 << 20))
    assert title == "Memory 3M  peak 3M  limit 512M"
    assert not any("┄" in row for row in rows)
    title, *rows = await drawn(Graph(MEMORY), [float(300 << 20)], float(512 << 20))
    assert title == "Memory 300M  peak 300M  ┄ limit 512M"
    assert any("┄" in row for row in rows)


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (3, 2), (5, 20), (40, 1)])
async def test_a_terminal_too_small_for_axes_breaks_nothing(size):
    assert await drawn(Graph(MEMORY), [1.0, None, float(9 << 20)], float(512 << 20), size=size)


@pytest.mark.parametrize("width", [12, 24, 40, 120])
@pytest.mark.parametrize("count", [1, 2, 30, 900])
async def test_no_row_is_wider_than_the_graph(width, count):
    lines = await drawn(Graph(CPU), [7.0] * count, None, size=(width, 20))
    assert all(len(line) <= width - 2 for line in lines[1:])
    assert lines[-1].endswith("now")


async def test_the_reason_is_whole_over_graphs(run_app):
    reason = " ".join(f"word{at}" for at in range(40))
    lost = sandbox("aaaaaaaaaaaa", "lost", Status.LOST, detail=reason)
    async with run_app(FakeBackend([lost], clock=lambda: NOW), size=(80, 24)) as (app, pilot):
        await pilot.press("4")
        await until(pilot, lambda: "Why: lost: word0" in screen_text(app))
        await until(pilot, lambda: "word39" in screen_text(app))
