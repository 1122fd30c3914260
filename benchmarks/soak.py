"""Ten minutes of a log flood followed on screen and of churn of sandboxes: what is lost, key latency, growth of RSS.

``python benchmarks/soak.py [flood|churn] [SECONDS]``: both, 600 s each, unless told otherwise. The flood is that of
benchmarks/log_flood.py at 10,000 lines/s. Churn is 100 creates and 100 removes a minute through the real service, with
its audit log on disk, on the backend in memory, beside 200 sandboxes that stay; the cursor goes over the list and each
sandbox it rests on is followed; before it 1,000 come and go in a minute, which fill what has a bound (SQLite's pages,
Textual's strips: 4 MiB). The slope of RSS is by least squares; that of the flood over the moments at which just the
cap of output is held: while a reader looks at older lines up to the double is. Exit code 1 where a goal is missed: a
line lost without a word, a key p99 of 100 ms, 300 MiB, a slope of 100 KiB a minute over ten minutes of churn.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from log_flood import flood, percentile, rss
from textual import events

from sandbox_console.model.action import Create, Remove, Start
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, Console, open_console
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.base.gc_pause import freeze_objects

KEY_MS, MOST_MIB, MOST_SLOPE = 100.0, 300.0, 100.0
STAYING, LIVES_S = 200, 10.0
MADE_A_MINUTE, AT_FIRST_A_MINUTE, FIRST_S = 100, 1000, 60.0
YES = Consent(yes=True)


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """KiB a minute, by least squares over (seconds, MiB)."""
    times, sizes = zip(*samples, strict=True)
    return statistics.linear_regression(times, sizes).slope * 60 * 1024


def staying() -> list[Sandbox]:
    now = time.time()
    return [
        Sandbox(SandboxRef("fake", "local", f"{at:012x}"), f"stays-{at:03}", Status.RUNNING, "python:3.12", now - at)
        for at in range(STAYING)
    ]


class Churn:
    """Creates and removes at an even rate until its time is over."""

    def __init__(self, console: Console, seconds: float, a_minute: int) -> None:
        self.console, self.seconds, self.a_minute = console, seconds, a_minute
        self.made = self.removed = 0
        self.alive: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        began = time.monotonic()
        while (now := time.monotonic() - began) < self.seconds:
            if self.made < now * self.a_minute / 60:
                self.made += 1
                task = asyncio.create_task(self.one(self.made))
                self.alive.add(task)
                task.add_done_callback(self.alive.discard)
            await asyncio.sleep(0.05)
        await asyncio.gather(*self.alive)

    async def one(self, at: int) -> None:
        spec = SandboxSpec(f"churn-{self.a_minute}-{at}", "python:3.12", egress=("acme.org",), labels={"turn": str(at)})
        ref = (await self.console.perform(Create(spec, "fake", "local"), consent=YES).result()).ref
        assert ref is not None
        await self.console.perform(Start(ref), consent=YES).result()
        await asyncio.sleep(LIVES_S)
        await self.console.perform(Remove(ref, force=True), consent=YES).result()
        self.removed += 1


async def churn(seconds: float) -> tuple[Churn, list[tuple[float, float]], list[float], float]:
    backend = FakeBackend(staying(), clock=time.time)
    async with open_console(Config(backend="fake"), backends=[backend]) as console:
        app = ConsoleApp(console)
        async with app.run_test(size=(160, 50)) as pilot:
            while len(app.fleet.sandboxes) < STAYING:
                await pilot.pause(0.05)
            freeze_objects()  # as the program does two seconds after its start
            await Churn(console, FIRST_S, AT_FIRST_A_MINUTE).run()
            churned = Churn(console, seconds, MADE_A_MINUTE)
            running = asyncio.create_task(churned.run())
            began, cpu = time.monotonic(), time.process_time()
            sizes: list[tuple[float, float]] = []
            late: list[float] = []
            while not running.done():
                before = time.perf_counter()
                await asyncio.sleep(0.5)
                late.append((time.perf_counter() - before - 0.5) * 1000)
                app.post_message(events.Key("up" if len(late) % 7 == 6 else "down", None))
                if len(late) % 4 == 0:
                    sizes.append((time.monotonic() - began, rss()))
                if len(late) % 100 == 99:
                    app.main.table.action_go(0)
            await running
            return churned, sizes, late, (time.process_time() - cpu) / (time.monotonic() - began) * 100


def tell_churn(seconds: float) -> bool:
    churned, sizes, late, core = asyncio.run(churn(seconds))
    found = slope(sizes)
    print(f"churn: {churned.made} made, {churned.removed} removed in {seconds:.0f} s, {core:.1f} % of a core")
    print(f"  RSS                    {sizes[0][1]:.1f} MiB at first, {sizes[-1][1]:.1f} at the end")
    print(f"  slope                  {found:+.0f} KiB/min")
    print(f"  the loop was late      median {percentile(late, 0.5):.1f} ms, p99 {percentile(late, 0.99):.0f}")
    return churned.removed == churned.made and found < MOST_SLOPE


def tell_flood(seconds: float) -> bool:
    found = asyncio.run(flood(seconds, 10_000))
    found.tell()
    if len(found.at_cap) > 1:
        print(f"  slope at the cap       {slope(found.at_cap):+.0f} KiB/min over {len(found.at_cap)} readings")
    most = max(size for _, size in found.rss)
    return found.ended and not found.lost and found.p99 < KEY_MS and most < MOST_MIB


def main() -> int:
    words = [word for word in sys.argv[1:] if not word.isdigit()] or ["flood", "churn"]
    seconds = float(next((word for word in sys.argv[1:] if word.isdigit()), "600"))
    good = True
    for word in words:
        with tempfile.TemporaryDirectory(prefix="soak-") as home:
            os.environ["SANDBOX_CONSOLE_HOME"] = home
            good &= {"flood": tell_flood, "churn": tell_churn}[word](seconds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
