"""FleetTable beside Textual's DataTable: CPU milliseconds to load and paint, to change 3 cells a row, to sort."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from time import process_time

from textual.app import App
from textual.widget import Widget
from textual.widgets import DataTable

from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

TITLES = ("STATE", "NAME", "BACKEND", "IMAGE", "CPU", "MEMORY", "EGRESS", "SECRETS", "AGE", "EXIT")


def cells(n: int) -> list[tuple[str, ...]]:
    rng = random.Random(7)
    return [
        (
            "● running", f"sandbox-{i}", "docker", "python:3.12-slim", f"{rng.random() * 100:.1f}%",
            f"{rng.randrange(9999)} MiB", "deny all", "2", f"{rng.randrange(999)}s", "",
        )
        for i in range(n)
    ]  # fmt: skip


def ticked(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    rng = random.Random(8)
    return [
        (*row[:4], f"{rng.random() * 100:.1f}%", f"{rng.randrange(9999)} MiB", *row[6:8], f"{rng.randrange(999)}s", "")
        for row in rows
    ]


class Bench(App[None]):
    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget

    def compose(self):
        yield self.widget


async def measure(widget, load, tick, sort) -> list[float]:
    async with Bench(widget).run_test(size=(160, 50)) as pilot:
        times = []
        for step in (load, tick, sort):
            gc.collect()
            start = process_time()
            step()
            await pilot.pause()
            times.append((process_time() - start) * 1000)
        return times


async def fleet(n: int) -> list[float]:
    rows, later = cells(n), ticked(cells(n))
    table = FleetTable([Column(title.lower(), title) for title in TITLES])
    return await measure(
        table,
        lambda: table.set_rows([Row(i, row) for i, row in enumerate(rows)]),
        lambda: table.set_rows([Row(i, row) for i, row in enumerate(later)]),
        lambda: table.sort_by("memory"),
    )


async def datatable(n: int) -> list[float]:
    rows, later = cells(n), ticked(cells(n))
    table: DataTable[str] = DataTable()

    def load() -> None:
        for title in TITLES:
            table.add_column(title, key=title)
        for i, row in enumerate(rows):
            table.add_row(*row, key=str(i))

    def tick() -> None:
        for i, row in enumerate(later):
            for column in (4, 5, 8):
                table.update_cell(str(i), TITLES[column], row[column])

    return await measure(table, load, tick, lambda: table.sort("MEMORY"))


async def main(sizes: list[int]) -> None:
    print(f"{'CPU ms':28}{'load + paint':>14}{'tick':>10}{'sort':>10}")
    for n in sizes:
        for name, run in (("DataTable", datatable), ("FleetTable", fleet)):
            times = await run(n)
            print(f"{name:12}{n:>10,} rows {times[0]:>14.1f}{times[1]:>10.1f}{times[2]:>10.1f}", flush=True)


asyncio.run(main([int(size) for size in sys.argv[1:]] or [1000, 10_000]))
