"""100 simulated engines with 10,000 containers: the app's first rows, all rows, keys, memory and network.

Run: python benchmarks/fleet.py [hosts] [containers] [frozen] [flapping] [events per second]. The engines are one
process that answers from recorded answers over Unix sockets (tests/support/simulated_engines.py): what a network adds
is not in the figures. The app runs headless (160x50) in a process of its own. Goals: first rows < 1 s, all < 5 s, a
key p95 < 50 ms, RSS < 400 MiB, idle network < 50 KB/s. Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

KEYS, KEY_EVERY_S, IDLE_S, ALL_MOST_S = 60, 0.1, 10.0, 60.0


class Engines:
    """The process with the engines."""

    def __init__(self, folder: Path, numbers: list[int]) -> None:
        self.folder = folder
        words = [sys.executable, "-m", "tests.support.simulated_engines", str(folder), *map(str, numbers)]
        with (folder / "errors").open("wb") as errors:
            self._process = subprocess.Popen(words, cwd=Path(__file__).resolve().parents[1], stderr=errors)
        while not (folder / "bytes").exists():
            time.sleep(0.05)

    def sent(self) -> int:
        (self.folder / "bytes").unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        while not (self.folder / "bytes").exists():
            time.sleep(0.01)
        return int((self.folder / "bytes").read_text())

    def switch(self) -> None:
        self._process.send_signal(signal.SIGUSR2)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(10)


def rss_mib() -> float:
    words = Path("/proc/self/statm").read_text().split()
    return int(words[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


async def measure(engines: Engines, names: list[str], rows: int) -> list[tuple[str, float, str, float | None]]:
    began = time.perf_counter()
    from sandbox_console.service import Config, open_console
    from sandbox_console.tui.app import ConsoleApp

    found: list[tuple[str, float, str, float | None]] = []
    config = Config(backend="docker", backends={"docker": {"contexts": names}})
    async with open_console(config, only_backend="docker") as console:
        app = ConsoleApp(console)
        async with app.run_test(size=(160, 50)) as pilot:
            while not app.main.table.rows:
                await asyncio.sleep(0.005)
            await pilot.pause()
            found.append(("first rows, with imports", time.perf_counter() - began, "s", 1.0))
            while len(app.fleet.sandboxes) < rows and time.perf_counter() - began < ALL_MOST_S:
                await asyncio.sleep(0.01)
            await pilot.pause()
            found.append((f"all {len(app.fleet.sandboxes):,} rows", time.perf_counter() - began, "s", 5.0))
            found.append(("CPU until then", time.process_time(), "s", None))
            found += await keys(pilot)
            found += await network(engines)
            found.append(("RSS", rss_mib(), "MiB", 400.0))
    return found


async def keys(pilot) -> list[tuple[str, float, str, float | None]]:
    """From the key until the row is drawn and the app idle, with all that happens meanwhile."""
    took: list[float] = []
    lag: list[float] = []
    cost: list[float] = []

    async def beat() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.01)
            lag.append((time.perf_counter() - began - 0.01) * 1000)

    beating = asyncio.create_task(beat())
    cpu, wall = time.process_time(), time.perf_counter()
    for at in range(KEYS):
        began, busy = time.perf_counter(), time.process_time()
        await pilot.press("down" if at % 20 < 15 else "pagedown")
        took.append((time.perf_counter() - began) * 1000)
        cost.append((time.process_time() - busy) * 1000)
        await asyncio.sleep(KEY_EVERY_S)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    beating.cancel()
    took.sort()
    cost.sort()
    lag.sort()
    return [
        ("key p50", took[len(took) // 2], "ms", None),
        ("key p95", took[int(len(took) * 0.95)], "ms", 50.0),
        ("key p95, CPU of the app", cost[int(len(cost) * 0.95)], "ms", None),
        ("loop lag p95", lag[int(len(lag) * 0.95)], "ms", None),
        ("loop lag most", lag[-1], "ms", None),
        ("CPU meanwhile", cpu / wall * 100, "%", None),
    ]


async def network(engines: Engines) -> list[tuple[str, float, str, float | None]]:
    async def rate() -> tuple[float, float]:
        before, cpu = engines.sent(), time.process_time()
        await asyncio.sleep(IDLE_S)
        return (engines.sent() - before) / IDLE_S / 1000, (time.process_time() - cpu) / IDLE_S * 100

    busy, _ = await rate()
    engines.switch()
    await asyncio.sleep(6)
    idle, cpu = await rate()
    return [
        ("network, with events", busy, "KB/s", None),
        ("network, idle", idle, "KB/s", 50.0),
        ("CPU, idle", cpu, "%", None),
    ]


def main() -> int:
    numbers = [int(word) for word in sys.argv[1:]]
    numbers += [100, 10_000, 10, 10, 200][len(numbers) :]
    hosts, containers, frozen, flapping, _ = numbers
    folder = Path(tempfile.mkdtemp(prefix="sc-fleet-", dir="/tmp"))
    os.environ["SANDBOX_CONSOLE_HOME"], os.environ["DOCKER_CONFIG"] = str(folder / "home"), str(folder / "docker")
    os.environ.pop("DOCKER_HOST", None)
    names = [f"h{at:03}" for at in range(hosts)]
    from tests.support.simulated_engines import contexts

    contexts(folder / "docker", folder, names)
    engines = Engines(folder, numbers)
    try:
        rows = containers // hosts * (hosts - frozen)
        found = asyncio.run(measure(engines, names, rows))
    finally:
        engines.end()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{hosts} hosts ({frozen} frozen, {flapping} flapping), {containers:,} containers")
    print(f"{'load':28}{os.getloadavg()[0]:>10.1f}")
    missed = 0
    for name, value, unit, goal in found:
        missed += goal is not None and value >= goal
        mark = "" if goal is None else f"goal < {goal:g} {'missed' if value >= goal else 'met'}"
        print(f"{name:28}{value:>10.1f} {unit:6}{mark}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
