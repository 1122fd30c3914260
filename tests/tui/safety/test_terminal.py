"""Terminals that can do less: one that draws nothing is told so, one without colours gets greys."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

COLOUR = re.compile(rb"\x1b\[[0-9;]*[34]8;2;(\d+);(\d+);(\d+)")


@pytest.fixture
def on_terminal(tmp_path):
    def run(*command, until=None, **environment):
        master, slave = pty.openpty()
        env = os.environ | {"SANDBOX_CONSOLE_HOME": str(tmp_path), "COLORTERM": "truecolor", **environment}
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=env)
        os.close(slave)
        output, deadline = b"", time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                if select.select([master], [], [], 0.1)[0]:
                    try:
                        output += os.read(master, 65536)
                    except OSError:  # the other side is closed
                        break
                if until is not None and until in output:
                    break
        finally:
            process.kill()
            code = process.wait()
            os.close(master)
        return output, code

    return run


def test_a_terminal_that_draws_nothing_is_told_what_else_there_is(on_terminal):
    output, code = on_terminal(sys.executable, "-m", "sandbox_console", TERM="dumb")
    assert b"TERM=dumb" in output
    assert b"ls --watch" in output
    assert b"\x1b" not in output
    assert code == 2


def test_without_colours_nothing_but_greys_is_drawn(on_terminal):
    script = Path(__file__).parent / "hostile_console.py"
    output, _ = on_terminal(sys.executable, str(script), until=b"Stop", TERM="xterm-256color", NO_COLOR="1")
    assert b"N0q" in output
    drawn = {tuple(map(int, rgb)) for rgb in COLOUR.findall(output)}
    assert drawn
    assert [rgb for rgb in drawn if max(rgb) - min(rgb) > 2] == []
