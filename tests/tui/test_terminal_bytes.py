"""What goes to a terminal: the cells that change, which leave the same picture as whole lines, in few bytes."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Region
from textual.strip import Strip

from sandbox_console.tui.base.changed_cells import ChangedCells
from sandbox_console.tui.base.safety import SafeApp
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

COLUMNS, ROWS = 30, 6
WORDS = ["box", "12.5%", "running", " ", "─┬", "漢字", "e\u0301", "●", "0", "1"]
STYLES = [None, Style.parse("bold red"), Style.parse("on blue"), Style.parse("#123456 on #654321")]
CONSOLE = Console(color_system="truecolor", force_terminal=True, width=COLUMNS)


def line(rng: random.Random) -> Strip:
    segments = [Segment(rng.choice(WORDS), rng.choice(STYLES)) for _ in range(rng.randrange(1, 9))]
    return Strip(segments).adjust_cell_length(COLUMNS)


def picture(emulator: GhosttyEmulator) -> list[list[tuple[str, Style | None]]]:
    emulator.refresh()
    return [[(char, run.style) for run in emulator.line(y) for char in run.text] for y in range(ROWS)]


@pytest.mark.parametrize("seed", range(10))
def test_the_cells_that_change_leave_the_picture_that_whole_lines_leave(seed):
    rng, sent = random.Random(seed), ChangedCells()
    whole, ours = GhosttyEmulator(COLUMNS, ROWS), GhosttyEmulator(COLUMNS, ROWS)
    lines = [line(rng) for _ in range(ROWS)]
    saved = 0
    for turn in range(120):
        if turn % 40 == 0:
            updates = [LayoutUpdate([[one] for one in lines], Region(0, 0, COLUMNS, ROWS)) for _ in range(2)]
        else:
            for y in rng.sample(range(ROWS), 2):
                lines[y] = line(rng) if rng.random() < 0.4 else lines[y]
            spans = [(y, 0, COLUMNS) for y in sorted(rng.sample(range(ROWS), 3))]
            updates = [ChopsUpdate([{0: one} for one in lines], spans, [[COLUMNS]] * ROWS)] * 2
        plain, reduced = updates[0].render_segments(CONSOLE), sent.reduced(updates[1]).render_segments(CONSOLE)
        whole.feed(plain.encode())
        ours.feed(reduced.encode())
        saved += len(plain) - len(reduced)
        assert picture(ours) == picture(whole)
    assert saved > 0


def test_a_layout_is_sent_whole_as_it_mends_what_others_wrote_on_the_terminal():
    sent = ChangedCells()
    for _ in range(2):
        update = LayoutUpdate([[Strip([Segment("hello")])]], Region(0, 0, 5, 1))
        assert "hello" in sent.reduced(update).render_segments(CONSOLE)
    again = ChopsUpdate([{0: Strip([Segment("hello")])}], [(0, 0, 5)], [[5]])
    assert sent.reduced(again).render_segments(CONSOLE) == ""
    sent.forget()
    assert "hello" in sent.reduced(again).render_segments(CONSOLE)


def test_twenty_rows_that_change_cost_few_bytes_at_a_terminal():
    from screen import IDLE_BYTES_A_S, KEY_BYTES, Terminal, child

    terminal = Terminal(child())
    try:
        terminal.read(8)
        assert 0 < (idle := terminal.read(10)) < 10 * IDLE_BYTES_A_S
        keys = [terminal.press(b"\x1b[B" if at < 4 else b"\x1b[A") for at in range(8)]
        assert max(keys) > 0
        assert sum(keys) / len(keys) < KEY_BYTES + idle / 10
    finally:
        terminal.close()


@pytest.mark.parametrize(("returns", "times"), [(True, 1), (False, 3)])
async def test_a_browser_that_is_told_of_gets_no_cell_twice_until_its_screen_is_forgotten(returns, times):
    sent: list[str] = []

    class Driver(HeadlessDriver):
        is_web = True
        is_headless = False
        tells_return = returns

        def write(self, data: str) -> None:
            sent.append(data)

    app: SafeApp[None] = SafeApp()
    app.driver_class = Driver
    async with app.run_test(headless=False) as pilot:
        await pilot.pause()

        def frames() -> int:
            sent.clear()
            for _ in range(3):
                app._display(app.screen, ChopsUpdate([{0: Strip([Segment("hello")])}], [(0, 0, 5)], [[5]]))
            return sum("hello" in data for data in sent)

        assert frames() == times
        assert frames() == (0 if returns else 3)
        assert len(sent) == (0 if returns else 3)
        app.forget_screen()
        assert frames() == times
