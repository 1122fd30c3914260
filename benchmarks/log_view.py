"""The log store and view on a million lines: append, bytes a line, first and later paints of 48 rows, search."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable
from time import perf_counter

from textual.app import App

from sandbox_console.logs.index import LineIndex
from sandbox_console.logs.pattern import compile_pattern
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.tui.widgets.log.log_view import LogView

BATCH = 1000


def record(at: int) -> LogRecord:
    tail = b" needle" if at % 100_000 == 7 else b" hit" if at % 5 == 0 else b""
    stream = Stream.STDERR if at % 7 == 0 else Stream.STDOUT
    return LogRecord(at * 1000, stream, b"\x1b[32m%08d\x1b[0m " % at + b"x" * 80 + tail + b"\n")


class Bench(App[None]):
    def compose(self):
        yield LogView(cap_bytes=1 << 30)


def ms(work: Callable[[], object]) -> float:
    gc.collect()
    start = perf_counter()
    work()
    return (perf_counter() - start) * 1000


def paint(view: LogView, row: int) -> None:
    view._move(row)
    view._page.forget()
    view._drawn = None
    for y in range(view.size.height):
        view.render_line(y)


async def main(count: int) -> None:
    async with Bench().run_test(size=(160, 49)) as pilot:
        view = pilot.app.query_one(LogView)
        view.follow = False
        spent, raw = 0.0, 0
        tracemalloc.start()
        for start in range(0, count, BATCH):
            batch = [record(at) for at in range(start, min(start + BATCH, count))]
            raw += sum(len(item.data) for item in batch)
            view.store.append(batch)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        view.store.clear()
        for start in range(0, count, BATCH):
            batch = [record(at) for at in range(start, min(start + BATCH, count))]
            spent += ms(lambda batch=batch: view.append(batch)) if start % (50 * BATCH) == 0 else 0
            if start % (50 * BATCH):
                view.append(batch)
        timed = len(range(0, count, 50 * BATCH)) * BATCH
        await pilot.pause(0.2)
        rows = [
            ("append", f"{timed / spent * 1000:,.0f} lines/s"),
            ("memory", f"{held / count:.0f} bytes a line (raw {raw / count:.0f})"),
            ("48 rows, first paint", f"{ms(lambda: paint(view, count // 2)):.1f} ms"),
            ("48 rows, again", f"{ms(lambda: paint(view, count // 2)):.1f} ms"),
            ("48 rows, folded", f"{ms(lambda: (setattr(view, 'wrap', True), paint(view, count // 3))):.1f} ms"),
        ]
        for name, pattern in (
            ("filter, every 5th line", "hit"),
            ("rare search", "needle"),
            ("rare, case counts", "Needle"),
        ):
            index = LineIndex(view.store, compile_pattern(pattern))
            rows.append((name, f"{ms(index.update) / 1000:.2f} s, {len(index.lines):,} lines"))
        print(f"{count:,} lines")
        for name, value in rows:
            print(f"  {name:26}{value}")


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
