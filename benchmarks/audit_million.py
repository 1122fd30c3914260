"""A million rows in the audit log: pages by each filter, the walk over the chain, export, bytes a row, opening.

The rows are chained and inserted by the log's own code, many in one transaction; all else is what a console does.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from sandbox_console.audit import export, query, rows, verify
from sandbox_console.audit.journal import Journal, summarised
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.audit.rows import Draft
from sandbox_console.audit.store import Store
from sandbox_console.model.audit import AuditQuery, AuditSelection, Kind, Outcome

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
TURNS = 7
VERBS = ("create", "exec", "exec", "exec", "shell", "stop", "start", "update", "egress-allow", "remove")
ORIGIN = {"uid": 1000, "tty": "/dev/pts/3", "host": "build-17", "version": "0.3.0"}


def pair(number: int) -> list[Draft]:
    """An attempt and its outcome: 500 sandboxes, 20 actors, every hundredth denied and every thousandth unknown."""
    verb, actor, target = VERBS[number % 10], f"user:dev{number % 20}", f"docker/local/{number % 500:012x}"
    outcome = Outcome.DENIED if number % 100 == 7 else Outcome.UNKNOWN if number % 1000 == 13 else Outcome.OK
    body = {"origin": ORIGIN, "name": f"agent-{number % 500}", "argv": ["python", "-c", f"print({number})"]}
    session = f"s{number // 5000}"
    return [
        Draft(Kind.ATTEMPT, actor, session, verb, "docker", target, body=body),
        Draft(Kind.OUTCOME, actor, session, verb, "docker", target, outcome=outcome, dur_us=1200, body={"exit": 0}),
    ]


def fill(path: Path) -> None:
    """By the store itself, with its rotation, in transactions of 5,000 rows."""
    layout = Layout(path)
    begun = time.perf_counter()
    store = Store(layout, RetentionPolicy(), "bench", "s0")
    for start in range(0, ROWS // 2, 2500):
        with store._lock.held():
            store._segment.follow()
            made: list[rows.Row] = []
            for number in range(start, min(start + 2500, ROWS // 2)):
                position = rows.position(made[-1]) if made else rows.head(store._segment.there())
                made += rows.chained(pair(number), position, store._mac)
            store._commit(made)
            store._keep_up(made[-1])
    store.close()
    print(f"{'filled':44} {ROWS:,} rows in {time.perf_counter() - begun:.1f} s, {len(layout.indices())} segments")
    begun, cpu = time.perf_counter(), time.process_time()
    done = summarised(layout, layout.indices()[:-1])
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    print(f"{'summaries, beside the appends':44} {len(done)} segments, {took:.1f} s   CPU {cpu:.1f} s")


async def timed(call: Callable[[], Coroutine[Any, Any, list[Any]]]) -> str:
    """The median and the worst of some turns in ms, the first (cold) one in them; CPU time; how many rows came."""
    took, cpu = [], time.process_time()
    for _ in range(TURNS):
        begun = time.perf_counter()
        found = await call()
        took.append((time.perf_counter() - begun) * 1e3)
    cpu = (time.process_time() - cpu) * 1e3 / TURNS
    return f"p50 {sorted(took)[TURNS // 2]:7.1f} ms   worst {max(took):7.1f}   CPU {cpu:7.1f}   {len(found)} entries"


async def pages(path: Path) -> None:
    [first] = await query.entries(path, AuditQuery(limit=1, before_seq=ROWS // 2))
    middle = first.attempt.at_ns / 1e9
    asked = {
        "newest 50": AuditQuery(),
        "newest 500 (the screen)": AuditQuery(limit=500),
        "page in the middle": AuditQuery(before_seq=ROWS // 2),
        "--actor": AuditQuery(actor="user:dev7"),
        "--actor that is nobody": AuditQuery(actor="nobody"),
        "--action": AuditQuery(action="remove"),
        "--target": AuditQuery(target=f"docker/local/{5:012x}"),
        "--backend": AuditQuery(backend="docker"),
        "--backend that is none": AuditQuery(backend="none"),
        "--outcome denied": AuditQuery(outcome="denied"),
        "--outcome ok": AuditQuery(outcome="ok"),
        "--outcome denied,failed,unknown,timed_out": AuditQuery(outcome="denied,failed,unknown,timed_out"),
        "--outcome that none has": AuditQuery(outcome="cancelled"),
        "--actor and --outcome": AuditQuery(actor="user:dev7", outcome="denied"),
        "--since": AuditQuery(since=middle),
        "--until": AuditQuery(until=middle),
        "--since and --until": AuditQuery(since=middle - 1, until=middle),
        "text that many have": AuditQuery(text="agent-77"),
        "text that one has": AuditQuery(text="print(4999)"),
        "text that none has": AuditQuery(text="no such text anywhere"),
        "text of two that none has": AuditQuery(text="zq"),
    }
    for name, one in asked.items():
        told = await timed(lambda one=one: query.entries(path, one))  # type: ignore[misc]
        print(f"{name:44} {told}")


async def exported(path: Path, form: str) -> None:
    begun, cpu, size = time.perf_counter(), time.process_time(), 0
    blocks: AsyncIterator[bytes] = export.export(path, form, AuditSelection())
    async for block in blocks:
        size += len(block)
    took = time.perf_counter() - begun
    cpu = time.process_time() - cpu
    print(f"{'export ' + form:44} {ROWS / took:8,.0f} records/s   {ROWS / cpu:,.0f} a CPU second   {size >> 20} MiB")


async def measure(folder: Path) -> None:
    path = folder / "audit.db"
    await (await Journal.open(path, "bench")).close()
    fill(path)
    begun = time.perf_counter()
    await (await Journal.open(path, "bench")).close()
    print(f"{'open and close the journal':44} {(time.perf_counter() - begun) * 1e3:8.1f} ms")
    await pages(path)
    begun, cpu = time.perf_counter(), time.process_time()
    found = await verify.verify(path)
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert found.ok, found.problem
    print(f"{'verify':44} {took:8.1f} s   CPU {cpu:.1f} s")
    for form in export.formats():
        await exported(path, form)
    size = sum(file.stat().st_size for file in folder.glob("audit[.-]*"))
    print(
        f"{'bytes a row, indexes, summaries and all':44} {size / found.rows:8.0f} B   (SQLite {sqlite3.sqlite_version})"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        asyncio.run(measure(Path(name)))


if __name__ == "__main__":
    main()
