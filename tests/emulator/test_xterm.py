"""The app's emulator beside xterm.js, on what real programs write: text, looks, cursor and screen, at each checkpoint."""

from __future__ import annotations

import pytest
from tests.emulator import capture, xterm
from tests.emulator.programs import PROGRAMS
from tests.emulator.screens import Ours, differences
from tests.support.require import missing


def test_every_program_has_its_capture() -> None:
    assert capture.names() == sorted(program.name for program in PROGRAMS)
    assert sum(len(capture.load(name).checkpoints) for name in capture.names()) > 200


@pytest.mark.parametrize("program", capture.names())
def test_its_screens_are_those_of_xterm(program: str) -> None:
    held = capture.load(program)
    ours = Ours(held)
    found = {name: differences(ours, theirs) for name, theirs in zip(ours.checkpoints(), held.screens, strict=True)}
    assert {name: told for name, told in found.items() if told} == {}


@pytest.mark.slow
def test_the_stored_screens_are_those_that_xterm_shows() -> None:
    if reason := missing("xterm"):
        pytest.skip(f"xterm: {reason}")
    held = [capture.load(name) for name in capture.names()]
    for one, screens in zip(held, xterm.screens(held), strict=True):
        assert screens == one.screens, one.program
