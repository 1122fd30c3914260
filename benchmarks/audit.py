"""The audit log: attempts and outcomes a second, and a walk over the whole chain, beside bare SQLite inserts."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from sandbox_console.audit import verify
from sandbox_console.audit.journal import Journal
from sandbox_console.model.audit import Outcome

PAIRS = 3000
BODY = {"spec": {"name": "agent-1", "image": "host", "memory_mib": 512, "labels": {"team": "search"}}}


async def journal(folder: Path) -> None:
    log = await Journal.open(folder / "audit.db", "bench")
    times = []
    begun = time.perf_counter()
    for _ in range(PAIRS):
        start = time.perf_counter()
        permit = await log.begin("create", "bubblewrap", "bubblewrap/local/0123456789ab", BODY)
        await log.finish(permit, Outcome.OK, 1000, {})
        times.append(time.perf_counter() - start)
    took = time.perf_counter() - begun
    await log.close()
    times.sort()
    print(f"{'journal: attempt + outcome':34} {PAIRS / took:8.0f} /s   p50 {times[PAIRS // 2] * 1e3:.2f} ms   "
          f"p99 {times[PAIRS * 99 // 100] * 1e3:.2f} ms")  # fmt: skip
    begun = time.perf_counter()
    found = await verify.verify(folder / "audit.db")
    took = time.perf_counter() - begun
    assert found.ok
    size = (folder / "audit.db").stat().st_size / found.rows
    print(f"{'verify the chain':34} {found.rows / took:8.0f} rows/s   {size:.0f} B a row on disk")


def bare(folder: Path) -> None:
    db = sqlite3.connect(folder / "bare.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, body TEXT)")
    begun = time.perf_counter()
    for _ in range(2 * PAIRS):
        db.execute("INSERT INTO t (body) VALUES (?)", (str(BODY),))
    took = time.perf_counter() - begun
    db.close()
    print(f"{'bare sqlite3, two inserts (FULL)':34} {PAIRS / took:8.0f} /s")


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        asyncio.run(journal(Path(name)))
        bare(Path(name))


if __name__ == "__main__":
    main()
