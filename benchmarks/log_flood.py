"""A sandbox that writes 10,000 lines a second, followed on screen: lines lost, key latency, memory.

``python benchmarks/log_flood.py [SECONDS] [LINES_A_SECOND]``: 60 s unless told otherwise. The sandbox is a real
bubblewrap one; the app runs without a terminal, everything else of it is real. A key's latency is from its arrival
in the app's queue to the drawing of what it changed; the goal is a p99 < 100 ms. Exit code 1 where it is missed or a
line was lost without a word.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from textual import events

from sandbox_console.model.action import Create, Remove
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.base.gc_pause import freeze_objects
from sandbox_console.tui.logs.logs_tab import LogsPane

WRITER = """
import sys, time
rate, seconds = int(sys.argv[1]), float(sys.argv[2])
start, sent = time.monotonic(), 0
while (now := time.monotonic() - start) < seconds:
    due = min(int(now * rate), int(seconds * rate))
    if due > sent:
        text = "level=info the line that a busy program writes, eighty bytes of it"
        sys.stdout.write("".join(f"{at:09} {text}\\n" for at in range(sent, due)))
        sys.stdout.flush()
        sent = due
    time.sleep(0.01)
print("END", sent)
sys.stdout.flush()
time.sleep(3600)
"""
MIB = 1 << 20
GOAL_MS = 100
AT_CAP_S = 20.0


def rss() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / MIB


def last_s(samples: list[tuple[float, float]]) -> float:
    return samples[-1][0] if samples else -AT_CAP_S


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Clocked:
    """Times from a key to the drawing that follows it."""

    def __init__(self, view):
        self.view, self.found = view, []
        self._pressed = self._acted = None
        self._act, self._render = view.action_line, view.render_line
        view.action_line, view.render_line = self.act, self.render

    def act(self, step):
        self._act(step)
        self._acted = self._pressed

    def render(self, y):
        if self._acted is not None:
            self.found.append((perf_counter() - self._acted) * 1000)
            self._pressed = self._acted = None
        return self._render(y)

    def press(self, app, key):
        if self._pressed is None:
            self._pressed = perf_counter()
            app.post_message(events.Key(key, None))


class Counted:
    """Every line that comes is one more than the one before, or it was lost."""

    def __init__(self, view):
        self.lines = self.lost = self.gaps = 0
        self.ended = False
        self._next = 0
        self._append = view.append
        view.append = self.append

    def append(self, items, source=0):
        for item in items:
            data = getattr(item, "data", None)
            if data is None:
                self.gaps += 1
            elif data.startswith(b"END"):
                self.ended = True
            else:
                number = int(data[:9])
                self.lost += number - self._next
                self._next = number + 1
                self.lines += 1
        self._append(items, source)


@dataclass
class Flooded:
    """What was measured. Sizes in MiB, times in ms; ``at_cap`` is RSS where just the cap is held."""

    lines: int
    took_s: float
    core: float
    lost: int
    gaps: int
    ended: bool
    held: int
    size: float
    cap: float
    keys: list[float]
    at_first: float
    rss: list[tuple[float, float]]
    at_cap: list[tuple[float, float]]

    @property
    def p99(self) -> float:
        return percentile(self.keys, 0.99)

    def tell(self) -> None:
        rate = self.lines / self.took_s
        print(f"{self.lines:,} lines in {self.took_s:.0f} s ({rate:,.0f}/s), {self.core:.0f} % of a core")
        print(f"  lost without a word    {self.lost:,}   told as gaps {self.gaps}   end seen {self.ended}")
        print(f"  held                   {self.held:,} lines, {self.size:.0f} MiB, cap {self.cap:.0f}")
        print(f"  key to drawn           median {percentile(self.keys, 0.5):.0f} ms, p99 {self.p99:.0f}, "
              f"most {max(self.keys):.0f}, {len(self.keys)} keys")  # fmt: skip
        most = max(size for _, size in self.rss)
        print(f"  RSS                    {self.at_first:.0f} MiB at first, {most:.0f} at most")


async def flood(seconds: float, rate: int) -> Flooded:
    async with open_console(Config(backend="bubblewrap"), only_backend="bubblewrap") as console:
        before = rss()
        app = ConsoleApp(console)
        async with app.run_test(size=(160, 50)) as pilot:
            view = app.main.query_one(LogsPane).view
            counted, clocked = Counted(view), Clocked(view)
            spec = SandboxSpec("flood", "host", ("python3", "-c", WRITER, str(rate), str(seconds)))
            made = await console.perform(Create(spec, "bubblewrap", "local")).result()
            app.main.select(made.ref)
            freeze_objects()  # as the program does two seconds after its start
            while not counted.lines:
                await asyncio.sleep(0.05)
            view.focus()
            await pilot.pause(0)
            began, cpu, sizes = time.monotonic(), time.process_time(), [(0.0, rss())]
            at_cap: list[tuple[float, float]] = []
            while not counted.ended and time.monotonic() - began < seconds + 120:
                await asyncio.sleep(0.2)
                clocked.press(app, "up" if len(clocked.found) % 2 else "down")
                if len(clocked.found) % 20 == 19:
                    view.action_tail()
                if time.monotonic() - began - sizes[-1][0] >= 1:
                    sizes.append((time.monotonic() - began, rss()))
                if view.store.size_bytes > view.store.cap_bytes and sizes[-1][0] - last_s(at_cap) >= AT_CAP_S:
                    while view.store.size_bytes > view.store.cap_bytes and not counted.ended:
                        view.action_tail()  # while lines above are read it holds up to the double
                        await asyncio.sleep(0.05)
                    if not counted.ended:
                        at_cap.append((time.monotonic() - began, rss()))
            took = time.monotonic() - began
            core = (time.process_time() - cpu) / took * 100
            found = Flooded(
                counted.lines, took, core, counted.lost, counted.gaps, counted.ended, view.total,
                view.store.size_bytes / MIB, view.store.cap_bytes / MIB, clocked.found, before, sizes, at_cap,
            )  # fmt: skip
        await console.perform(Remove(made.ref, force=True), consent=Consent(yes=True)).result()
        return found


def main() -> int:
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="flood-") as home:
        os.environ["SANDBOX_CONSOLE_HOME"] = home
        seconds = float(arguments[0]) if arguments else 60.0
        found = asyncio.run(flood(seconds, int(arguments[1]) if len(arguments) > 1 else 10_000))
    found.tell()
    return 0 if found.ended and not found.lost and found.p99 < GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
