"""Every screen of the console on a hostile fleet, on a real terminal: nothing acts, and all of it is shown."""

from __future__ import annotations

import re

import pytest

HOSTILE = {
    "OSC 0": b"\x1b]0;pwn",
    "OSC 52": b"\x1b]52;",
    "OSC 8": b"\x1b]8;",
    "DECRQSS": b"\x1bP$q",
    "title report": b"\x1b[21t",
}
SHOWN = {
    "the list": b"N0q",
    "the question for several": b"WILL",
    "results of several": b"failed",
    "pulse": b"Ended badly",
    "the audit log": b"chain holds",
    "copied commands": b"Copy a command",
    "the comparison": b"Differs",
    "backends": b"dead",
    "messages": b"Messages",
    "help": b"Keys",
    "files": b"MODIFIED",
}
C1 = re.compile(rb"\xc2[\x80-\x9f]")


@pytest.fixture
def output(run_in_pty, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    return run_in_pty("hostile_console.py", size=(120, 40), limit_s=150)


def test_nothing_of_a_sandbox_acts_through_any_screen(output):
    written = output.output
    assert b"STUCK" not in written, written[-600:]
    assert output.code == 0, "it ended by itself, and no injected click fired"
    assert b"LED " in written
    missing = [name for name, words in SHOWN.items() if words not in written]
    assert missing == [], "these screens were not shown, so they prove nothing"
    assert {name for name, sequence in HOSTILE.items() if sequence in written} == set()
    assert C1.findall(written) == []
    assert written.count(b"\x1b[?1049l") == 1, "only the app itself leaves the alternate screen, at its end"
    assert output.restored
