"""No sequence of a sandbox leaves through any widget, on a real terminal."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("hostile_app", Path(__file__).parent / "hostile_app.py")
hostile_app = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hostile_app)

STEPS = {  # when this is seen, that is sent: the mouse over the header, F7, F8
    "static": b"\x1b[<35;80;1M\x1b[<35;81;1M",
    "tooltip": b"\x1b[18~",
    "notify-title": b"\x1b[19~",
}
QUIT = b"\x11"
HOSTILE = {
    "OSC 0": b"\x1b]0;pwn",
    "OSC 52": b"\x1b]52;",
    "OSC 8": b"\x1b]8;",
    "DECRQSS": b"\x1bP$q",
    "title report": b"\x1b[21t",
}
C1 = re.compile(rb"\xc2[\x80-\x9f]")


def steps(never):
    """The keys in turn; the last when all is on the terminal but what never comes."""
    token = {name: hostile_app.token(name).encode() for name in hostile_app.NAMES}
    return {token[name]: keys for name, keys in STEPS.items()} | {
        tuple(token[name] for name in token if name not in never): QUIT
    }


@pytest.fixture
def shown(run_in_pty):
    def run(*args):
        run = run_in_pty("hostile_app.py", *args, send=steps({"notify"} if args else set()))
        missing = [name for name in hostile_app.NAMES if hostile_app.token(name).encode() not in run.output]
        return run.output, missing

    return run


def test_nothing_hostile_leaves_through_any_widget(shown):
    output, missing = shown()
    assert missing == [], "these paths did not show their text, so they prove nothing"
    assert {name for name, sequence in HOSTILE.items() if sequence in output} == set()
    assert C1.findall(output) == []
    assert output.count(b"\x1b[?1049l") == 1, "only the app itself leaves the alternate screen, at its end"


def test_without_the_filter_the_same_paths_leak(shown):
    """The control: were these widgets safe by themselves, the test above could not fail."""
    output, _ = shown("unsafe")
    leaks = [name for name in hostile_app.NAMES if hostile_app.token(name).encode() + b"\x1b]0;pwn" in output]
    assert len(leaks) >= 25, leaks
