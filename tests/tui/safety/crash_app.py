"""An app that fails with a secret in a local variable and in the error's own words."""

from __future__ import annotations

import sys
from pathlib import Path

from textual.widgets import Static

from sandbox_console.tui.base.safety import SafeApp


class Crash(SafeApp):
    def compose(self):
        yield Static("READY")

    def on_mount(self):
        self.set_timer(0.2, self.work_fails if "worker" in sys.argv else self.fail)

    def work_fails(self):
        self.run_worker(self.fail_later())

    async def fail_later(self):
        self.fail()

    def fail(self):
        password = "hunter2-" + "in-a-local"  # noqa: F841 - what must not be printed
        try:
            raise KeyError("hunter2-in-the-cause")  # noqa: TRY301
        except KeyError as error:
            raise ValueError("hunter2-in-the-message \x1b]0;pwn\x07") from error


app = Crash()
app.crash_dir = Path(sys.argv[1])
app.run()
sys.exit(app.return_code)
