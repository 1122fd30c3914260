"""A sandbox that writes 10,000 lines a second, followed on screen: lines lost, key latency, memory.

``python benchmarks/log_flood.py [SECONDS] [LINES_A_SECOND]``: 60 s unless told otherwise. The sandbox is a real
bubblewrap one; the app runs without a terminal, everything else of it is real. A key's latency is from its arrival
in the app's queue to the drawing of what it changed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from time import perf_counter

from textual import events

from sandbox_console.model.action import Create, Remove
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.panes.logs import LogsPane

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


def rss() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / MIB


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


async def main(seconds: float, rate: int) -> None:
    os.environ["SANDBOX_CONSOLE_HOME"] = tempfile.mkdtemp(prefix="flood-")
    async with open_console(Config(backend="bubblewrap"), only_backend="bubblewrap") as console:
        before = rss()
        app = ConsoleApp(console)
        async with app.run_test(size=(160, 50)) as pilot:
            view = app.main.query_one(LogsPane).view
            counted, clocked = Counted(view), Clocked(view)
            spec = SandboxSpec("flood", "host", ("python3", "-c", WRITER, str(rate), str(seconds)))
            made = await console.perform(Create(spec, "bubblewrap", "local")).result()
            app.main.select(made.ref)
            while not counted.lines:
                await asyncio.sleep(0.05)
            view.focus()
            await pilot.pause(0)
            began, cpu, peak = time.monotonic(), time.process_time(), 0.0
            while not counted.ended and time.monotonic() - began < seconds + 120:
                await asyncio.sleep(0.2)
                clocked.press(app, "up" if len(clocked.found) % 2 else "down")
                peak = max(peak, rss())
                if len(clocked.found) % 20 == 19:
                    view.action_tail()
            took = time.monotonic() - began
            used = (time.process_time() - cpu) / took * 100
            print(f"{counted.lines:,} lines in {took:.0f} s ({counted.lines / took:,.0f}/s), {used:.0f} % of a core")
            print(f"  lost without a word    {counted.lost:,}   told as gaps {counted.gaps}   end seen {counted.ended}")
            size, cap = view.store.size_bytes / MIB, view.store.cap_bytes / MIB
            print(f"  held                   {view.total:,} lines, {size:.0f} MiB, cap {cap:.0f}")
            keys = clocked.found
            median, p99 = percentile(keys, 0.5), percentile(keys, 0.99)
            print(f"  key to drawn           median {median:.0f} ms, p99 {p99:.0f} ms, {len(keys)} keys")
            print(f"  RSS                    {before:.0f} MiB at first, {peak:.0f} at most")
        await console.perform(Remove(made.ref, force=True), consent=Consent(yes=True)).result()


arguments = sys.argv[1:]
asyncio.run(main(float(arguments[0]) if arguments else 60.0, int(arguments[1]) if len(arguments) > 1 else 10_000))
