from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.require import requires

from sandbox_console.model.action import Exec, Remove
from sandbox_console.model.audit import AuditQuery, Outcome
from sandbox_console.model.sandbox import Status
from sandbox_console.service import Config, open_console

pytestmark = requires("bubblewrap")
HERE = Path(__file__).parent


async def test_sandboxes_outlive_a_console_killed_in_the_middle_of_an_exec(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    for number in range(3):
        command = [sys.executable, str(HERE / "boxed_console.py"), f"box-{number}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("in flight ")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    async with open_console(Config(), only_backend="bubblewrap") as console:
        boxes, _ = await console.list()
        assert sorted((box.name, box.status) for box in boxes) == [(f"box-{n}", Status.RUNNING) for n in range(3)]
        for box in boxes:
            assert (await console.perform(Exec(box.ref, ("echo", "alive"))).result()).stdout == b"alive\n"
        entries = await console.history(AuditQuery())
        unknown = [entry for entry in entries if entry.outcome == Outcome.UNKNOWN]
        assert [entry.attempt.action for entry in unknown] == ["exec"] * 3
        assert (await console.verify()).ok
        for box in boxes:
            await console.perform(Remove(box.ref, force=True)).result()
        assert not (await console.list())[0]
