"""A crash gives the terminal back, says where, and prints no value."""

from __future__ import annotations

import re
import stat

import pytest

from sandbox_console.errors import BackendUnreachable
from sandbox_console.tui.base.crash_report import crash_report
from sandbox_console.tui.base.safety import SafeApp


@pytest.mark.parametrize("where", ["handler", "worker"])
def test_a_crash_prints_no_value(run_in_pty, tmp_path, where):
    run = run_in_pty("crash_app.py", str(tmp_path), where, size=(100, 24))
    assert b"READY" in run.output
    assert run.code == 1
    assert run.restored
    after = run.output[run.output.index(b"\x1b[?1049l") :]
    assert b"\x1b[?25h" in run.output, "the cursor is shown again"
    assert b"stopped on an internal error" in after
    assert b"hunter2" not in run.output
    assert b"\x1b]0;" not in run.output
    [report] = tmp_path.iterdir()
    assert re.sub(rb"\s", b"", after).count(report.name.encode()) == 1
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    text = report.read_text()
    assert "hunter2" not in text
    assert "builtins.ValueError" in text
    assert "builtins.KeyError" in text
    assert re.search(r"crash_app\.py:\d+ fail$", text, re.MULTILINE)


async def test_the_consoles_own_errors_are_said_in_their_words(tmp_path):
    class App(SafeApp):
        crash_dir = tmp_path

        def on_mount(self):
            raise BackendUnreachable("docker at tcp://x does not answer")

    app = App()
    with pytest.raises(BackendUnreachable):
        async with app.run_test():
            pass
    assert app.return_code == 1


def test_a_report_that_cannot_be_written_is_said(tmp_path):
    said = crash_report(ValueError("hunter2"), tmp_path / "missing")
    assert "could not be written: No such file" in said
    assert "hunter2" not in said
