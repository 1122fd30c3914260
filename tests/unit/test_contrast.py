"""Text that has its background's colour is made readable; other colours stay as they are."""

from __future__ import annotations

import pytest
from rich.style import Style

from sandbox_console.logs.store import STDOUT, Line
from sandbox_console.tui.base.contrast import ENOUGH, contrast, readable
from sandbox_console.tui.widgets.log.log_line import line_text, segments
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator


@pytest.mark.parametrize("ground", [(0, 0, 0), (255, 255, 255), (204, 102, 102), (128, 128, 128), (0, 0, 255)])
def test_hidden_text_is_repaired_on_any_background(ground):
    for near in (0, 1, 5):
        ink = tuple(min(255, part + near) for part in ground)
        assert contrast(readable(ink, ground), ground) >= ENOUGH


def test_legible_text_stays_as_it_is():
    for ink, ground in (((208, 208, 208), (0, 0, 0)), ((0, 0, 200), (255, 255, 255)), ((88, 88, 88), (0, 0, 0))):
        assert readable(ink, ground) == ink


def triples(style):
    return tuple(one.get_truecolor() for one in (style.color, style.bgcolor))


@pytest.mark.parametrize("codes", ["31;41", "38;2;1;2;3;48;2;1;2;3", "7;31;41", "97;107", "38;5;16;40"])
def test_nothing_is_hidden_in_a_log_line(codes):
    line = Line(0, 0, STDOUT, f"a\x1b[{codes}mhidden\x1b[0m".encode())
    found = segments(line_text(line), Style.parse("#d6dbe3 on #12151b"))
    hidden = next(one for one in found if one.text == "hidden")
    assert contrast(*triples(hidden.style)) >= ENOUGH


@pytest.mark.parametrize("codes", ["31;41", "38;2;1;2;3;48;2;1;2;3", "30", "38;5;16"])
def test_nothing_is_hidden_in_a_shell(codes):
    emulator = GhosttyEmulator(20, 2)
    emulator.feed(f"\x1b[{codes}mhidden".encode())
    emulator.refresh()
    style = emulator.line(0)[0].style
    ground = style.bgcolor.get_truecolor() if style.bgcolor else (0, 0, 0)
    assert contrast(style.color.get_truecolor(), ground) >= 1.6
    emulator.close()
