"""The list of the whole program at 10,000 sandboxes: filter keystrokes, ticks, sorting, groups, first paint.

Run: python benchmarks/tui_table.py [rows]. CPU milliseconds from the key or the news until the app is idle again, its
drawing included, in one process with a headless terminal of 160x50; first paint is CPU seconds of the real program in
a pty (benchmarks/first_paint.py). Goals: a filter keystroke p95 < 50 ms, a full tick < 30 ms, first paint < 0.6 s at
1,000 rows and < 1 s at 10,000. Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from time import process_time

from msgspec import structs
from textual.pilot import Pilot

from sandbox_console.model.event import Changed, Event, Sampled
from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.state.messages import Arrived

TYPED = (
    "web-0",
    "^web-(1|2)",
    "state=exited",
    "cpu>80",
    "image~node age<2h",
    "!running",
    "-l team=red",
    "-f w12",
    "web.*1",
)
_IMAGES = ("python:3.12-slim", "node:22", "rust:1", "postgres:16")


def made(rows: int) -> list[Sandbox]:
    rng, now = random.Random(3), time.time()
    return [_sandbox(at, rng, now) for at in range(rows)]


def _sandbox(at: int, rng: random.Random, now: float) -> Sandbox:
    name = f"{rng.choice(('web', 'agent', 'build'))}-{at:05}"
    status = rng.choices((Status.RUNNING, Status.EXITED, Status.PAUSED, Status.FAILED), (70, 25, 3, 2))[0]
    end = None if status.live else Exit(rng.choice((0, 0, 0, 1, 137)))
    image = rng.choice(_IMAGES)
    return Sandbox(
        SandboxRef("fake", "local", f"{at:012x}"), name, status, image, now - rng.random() * 86400, now - 60,
        exit=end, labels={"team": rng.choice(("red", "blue"))},
        spec=SandboxSpec(name, image=image, egress=("acme.org",)),
    )  # fmt: skip


class Bench:
    def __init__(self, app: ConsoleApp, pilot: Pilot[None], fleet: list[Sandbox]) -> None:
        self.app, self.pilot, self.fleet = app, pilot, fleet
        self.rng = random.Random(4)

    async def cost(self, do: Callable[[], object]) -> float:
        """CPU milliseconds until all is drawn."""
        await self.pilot.pause()
        began = process_time()
        do()
        await self.pilot.pause()
        return (process_time() - began) * 1000

    def samples(self, some: list[Sandbox]) -> list[Event]:
        return [
            Sampled(one.ref, Stats(time.time(), self.rng.random() * 200, self.rng.randrange(1 << 30)))
            for one in some if one.status is Status.RUNNING
        ]  # fmt: skip

    def changes(self, some: list[Sandbox]) -> list[Event]:
        flip = {Status.RUNNING: Status.PAUSED, Status.PAUSED: Status.RUNNING}
        now = [self.app.fleet.sandboxes[one.ref] for one in some]
        return [Changed(structs.replace(one, status=flip.get(one.status, one.status))) for one in now]

    def news(self, events: list[Event]) -> Callable[[], object]:
        return lambda: self.app.on_arrived(Arrived(events))

    async def keystrokes(self) -> list[float]:
        found: list[float] = []
        line = self.app.main.fleet.filter_line.input
        self.app.main.action_filter()
        for text in TYPED:
            for end in range(1, len(text) + 1):
                found += [await self.cost(lambda value=text[:end]: setattr(line, "value", value))]
            line.value = ""
            await self.pilot.pause()
        return found

    async def several(self, do: Callable[[], Callable[[], object]], times: int = 9) -> list[float]:
        return [await self.cost(do()) for _ in range(times)]


async def in_process(rows: int) -> list[tuple[str, list[float], float | None]]:
    fleet = made(rows)
    async with open_console(Config(backend="fake"), backends=[FakeBackend(fleet, clock=time.time)]) as console:
        console.show_stats = lambda *_, **__: None  # type: ignore[method-assign, assignment] - no samples but those made here
        app = ConsoleApp(console)
        async with app.run_test(size=(160, 50)) as pilot:
            while len(app.fleet.sandboxes) < rows:
                await pilot.pause(0.05)
            gc.freeze()
            bench = Bench(app, pilot, fleet)
            app.on_arrived(Arrived(bench.samples(fleet)))
            await pilot.pause()
            return await scenes(bench)


async def scenes(bench: Bench) -> list[tuple[str, list[float], float | None]]:
    app, fleet, rng = bench.app, bench.fleet, bench.rng
    table = app.main.table
    found: list[tuple[str, list[float], float | None]] = [("filter keystroke", await bench.keystrokes(), 50)]
    seen = [app.fleet.sandboxes[row.key] for row in table.rows[:48]]  # type: ignore[index]
    found.append(("tick: the rows in view sampled", await bench.several(lambda: bench.news(bench.samples(seen))), 30))
    some = rng.sample(fleet, min(100, len(fleet)))
    found.append(("tick: 100 changed, rows sampled", await bench.several(
        lambda: bench.news(bench.changes(some) + bench.samples(seen))), 30))  # fmt: skip
    found.append(("tick: every one sampled", await bench.several(lambda: bench.news(bench.samples(fleet))), None))
    found.append(("tick: every one changed", await bench.several(lambda: bench.news(bench.changes(fleet))), None))
    found.append(("sort by name, and back", await bench.several(lambda: lambda: table.sort_by("name")), None))
    found.append(("sort by CPU, and back", await bench.several(lambda: lambda: table.sort_by("cpu")), None))
    found.append(("  then a tick of 48", await bench.several(lambda: bench.news(bench.samples(seen))), 30))
    table.unsort()
    found.append(("group by the next field", await bench.several(lambda: app.main.fleet.next_group), None))
    app.main.fleet.set_group("image")
    await bench.pilot.pause()
    found.append(("  then 100 changed", await bench.several(lambda: bench.news(bench.changes(some))), 30))
    app.main.fleet.set_group("")
    found.append(("cursor down", await bench.several(lambda: lambda: table.action_move(1), 30), 50))
    return found


def first_paint(rows: int, goal: float) -> tuple[str, list[float], float | None]:
    sys.path.insert(0, str(Path(__file__).parent))
    from first_paint import measure

    return f"first paint, {rows:,} rows, CPU", [measure(rows)["cpu_s"] * 1000 for _ in range(5)], goal


def main() -> int:
    rows = int(next((word for word in sys.argv[1:] if word.isdigit()), "10000"))
    with tempfile.TemporaryDirectory(prefix="tui-table-") as home:
        os.environ["SANDBOX_CONSOLE_HOME"] = home
        found = asyncio.run(in_process(rows))
        if "--no-paint" not in sys.argv:
            found += [first_paint(1000, 600), first_paint(10_000, 1000)]
    print(f"{f'CPU ms, {rows:,} rows':36}{'median':>9}{'p95':>9}{'most':>9}{'goal':>9}")
    missed = 0
    for name, times, goal in found:
        p95 = sorted(times)[min(len(times) - 1, int(len(times) * 0.95))]
        held = statistics.median(times) if "first" in name else p95
        missed += goal is not None and held >= goal
        mark = "" if goal is None else f"{goal:>7.0f}{' ✕' if held >= goal else ' ✓'}"
        print(f"{name:36}{statistics.median(times):>9.1f}{p95:>9.1f}{max(times):>9.1f}{mark}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
