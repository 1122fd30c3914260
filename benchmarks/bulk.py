"""One verb on thousands of sandboxes from the list: marked by a key, asked once, carried out with a row each.

Run: python benchmarks/bulk.py [SANDBOXES]: 5,000 unless told otherwise. The real service with its audit log on disk,
the backend in memory, a headless terminal of 160x50; CPU is the process's. The same actions without a screen tell what
of it is the service's own. ``late``: how late a timer of 50 ms was, which is how long a key waits.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from contextlib import asynccontextmanager

from textual.widgets import Input

from sandbox_console.model.action import Stop
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.bulk.results_screen import BulkConfirm

AT_ONCE = 8
BEAT_S = 0.05


def made(count: int) -> list[Sandbox]:
    now = time.time()
    return [
        Sandbox(SandboxRef("fake", "local", f"{at:012x}"), f"box-{at:05}", Status.RUNNING, "python:3.12", now - at,
                spec=SandboxSpec(f"box-{at:05}", image="python:3.12"))
        for at in range(count)
    ]  # fmt: skip


@asynccontextmanager
async def timed(what: str, count: int):
    late: list[float] = []

    async def beat() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(BEAT_S)
            late.append((time.perf_counter() - before - BEAT_S) * 1000)

    beating = asyncio.create_task(beat())
    began, cpu = time.monotonic(), time.process_time()
    yield
    took, used = time.monotonic() - began, time.process_time() - cpu
    beating.cancel()
    late.sort()
    p99 = late[int(len(late) * 0.99)] if late else 0.0
    each = f"{used / count * 1000:.2f} ms each"
    waited = f"late p99 {p99:.0f} ms, most {max(late, default=0):.0f}"
    print(f"{what:34}{took:>7.1f} s {used:>7.1f} s CPU, {each:>13}; {waited}")


async def without_screen(count: int) -> None:
    fleet = made(count)
    async with open_console(Config(backend="fake"), backends=[FakeBackend(fleet, clock=time.time)]) as console:
        limit = asyncio.Semaphore(AT_ONCE)

        async def stop(one: Sandbox) -> None:
            async with limit:
                await console.perform(Stop(one.ref), consent=Consent(yes=True)).result()

        async with timed("stop, without a screen", count):
            await asyncio.gather(*map(stop, fleet))


async def on_screen(count: int) -> None:
    async with open_console(Config(backend="fake"), backends=[FakeBackend(made(count), clock=time.time)]) as console:
        app = ConsoleApp(console)
        async with app.run_test(size=(160, 50)) as pilot:
            while len(app.fleet.sandboxes) < count:
                await pilot.pause(BEAT_S)
            async with timed("mark all", count):
                app.main.table.action_mark_all()
                await pilot.pause()
            async with timed("ask: the plan, the question", count):
                app.main.action_verb("stop")
                while not isinstance(app.screen, BulkConfirm):
                    await asyncio.sleep(BEAT_S)
                await pilot.pause()
            async with timed("stop, its page in view", count):
                for line in app.screen.query(Input):
                    line.value = f"stop {count}"
                app.screen.dismiss(True)
                while not app.bulk.runs or not app.bulk.runs[-1].done:
                    await asyncio.sleep(BEAT_S)
                await pilot.pause()
            assert len(app.bulk.runs[-1].items) == count, app.bulk.runs[-1].counts
            app.screen.dismiss(None)
            await pilot.pause()
            app.main.table.action_mark_all()
            app.main.action_verb("start")
            while not isinstance(app.screen, BulkConfirm):
                await asyncio.sleep(BEAT_S)
            await pilot.pause()
            async with timed("start, the list in view", count):
                app.screen.dismiss(True)
                while len(app.bulk.runs) < 1 or app.bulk.runs[-1].verb.name != "start":
                    await asyncio.sleep(BEAT_S)
                app.screen.dismiss(None)
                while not app.bulk.runs[-1].done:
                    await asyncio.sleep(BEAT_S)
                await pilot.pause()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    for run in (without_screen, on_screen):
        with tempfile.TemporaryDirectory(prefix="bulk-") as home:
            os.environ["SANDBOX_CONSOLE_HOME"] = home
            asyncio.run(run(count))


if __name__ == "__main__":
    main()
