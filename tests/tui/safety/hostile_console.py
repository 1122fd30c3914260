"""The whole console on a fleet whose every word is hostile, led through every screen; what it wrote is looked at."""

from __future__ import annotations

import asyncio
import sys

from sandbox_console.errors import BackendError
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.widgets.table.table import FleetTable

NOW = 1_700_000_600.0
CLICK = "[@click=app.pwned]CLICK[/]"
PAYLOAD = (
    "\x1b]0;pwn\x07" "\x1b]52;c;cHdu\x07" "\x1b]8;;http://pwn.test/\x1b\\" "\x1bP$qm\x1b\\" "\x1b[21t" "\x1b[?1049l"
    "\x9b21t" "\x9d0;pwn\x9c" "\x90$qm\x9c"
)  # fmt: skip
BAD = f"{CLICK}{PAYLOAD}"
LIST, TEXT = "=MainScreen", "=TextScreen"
BULK, RESULTS = "=BulkConfirm", "=BulkScreen"
STEPS = (
    *(f"{digit} wait escape" for digit in "1234567890"),
    f"space asterisk x {BULK} escape {LIST}", f"ctrl+d {BULK} escape {LIST}",
    f"p {BULK} y {RESULTS} done enter {TEXT} escape {RESULTS} escape {LIST}", f"J {RESULTS} escape {LIST}",
    f"m =MenuScreen escape {LIST}", f"Y =MenuScreen escape {LIST}", "escape",
    f"g equals_sign j equals_sign {TEXT} escape {LIST}", f"u =PulseScreen wait b {TEXT} escape =PulseScreen escape {LIST}",
    f"h =AuditScreen rows enter {TEXT} escape =AuditScreen escape {LIST}", f"i =EgressScreen wait escape {LIST}",
    f"v {TEXT} escape {LIST}", f"question_mark {TEXT} escape {LIST}", f"n =FormScreen escape {LIST}",
    f"ctrl+k =ConfirmScreen escape {LIST}", "slash a escape", "f wait f", f"ctrl+p =CommandPalette wait escape {LIST}",
)  # fmt: skip
"""Keys in turn; ``=Name`` waits for a screen, ``rows`` for those of its table, ``done`` for its results, ``wait`` for what comes later."""


def fleet():
    spec = SandboxSpec("hostile", BAD, (BAD,), {"K": BAD}, labels={BAD: BAD}, egress=(BAD,), secrets=(BAD,))
    for at, status in enumerate((Status.RUNNING, Status.RUNNING, Status.EXITED, Status.LOST)):
        yield Sandbox(
            SandboxRef("fake", "local", f"{at:04}{BAD}"), f"N{at}q{BAD}", status, BAD, created_at=NOW - 60,
            exit=Exit(1, reason=BAD), labels={BAD: BAD}, maker=BAD, spec=spec, detail=BAD,
            effective=(Fact(BAD, BAD, BAD, enforced=False),), restarts=3, finished_at=NOW - 5,
        )  # fmt: skip


class Led(ConsoleApp):
    """Presses the keys one after another, each when the one before was taken, then ends."""

    fired = 0

    def action_pwned(self):
        self.fired += 1

    def on_mount(self):  # beside the app's own, which Textual calls too
        self.run_worker(self.lead())

    async def lead(self):
        while len(self.fleet.sandboxes) < 4:
            await asyncio.sleep(0.05)
        for step in " ".join(STEPS).split():
            if step.startswith("="):
                await self.until_on(step[1:])
            elif step == "wait":
                await asyncio.sleep(0.5)
            elif step == "rows":
                await self.until(lambda: any(table.rows for table in self.screen.query(FleetTable)), "rows")
            elif step == "done":
                await self.until(lambda: self.screen.run_shown.done, "done")
            else:
                await asyncio.sleep(0.08)
                self.simulate_key(step)
        self.exit(return_code=3 if self.fired else 0, message=f"LED {BAD}")

    async def until_on(self, name):
        await self.until(lambda: type(self.screen).__name__ == name, name)

    async def until(self, check, what):
        deadline = asyncio.get_running_loop().time() + 60
        while not check():
            if asyncio.get_running_loop().time() > deadline:
                self.exit(return_code=4, message=f"STUCK before {what} on {type(self.screen).__name__}")
                await asyncio.sleep(60)
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)


async def main():
    logs = {f"{at:04}{BAD}": [LogRecord(int(NOW * 10**9), Stream.STDOUT, BAD.encode() + b"\n")] for at in range(4)}
    stats = {f"{at:04}{BAD}": [Stats(NOW, 10.0, 1 << 20)] for at in range(2)}
    fake = FakeBackend(list(fleet()), logs=logs, stats=stats, clock=lambda: NOW)
    fake.faults.verbs["pause"] = BackendError(f"the engine says {BAD}")
    dead = FakeBackend(name="dead", dead=True, reason=BAD)
    async with open_console(Config(backend="fake"), backends=[fake, dead]) as console:
        app = Led(console, clock=lambda: NOW)
        await app.run_async()
        return app.return_code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
