"""Runs a function on an aiosqlite connection's thread as one unit, which a cancellation cannot split."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from sandbox_console.model.cancellation import run_to_completion

T = TypeVar("T")


async def connect(database: str | Path, *, uri: bool = False) -> aiosqlite.Connection:
    """Open a connection. If that fails, its thread is ended, because it would otherwise use a closed loop."""
    db = aiosqlite.connect(database, uri=uri, isolation_level=None)
    try:
        return await db
    except Exception:
        await run_to_completion(asyncio.to_thread(db._thread.join))  # noqa: SLF001
        raise


class Worker:
    """One thread for one writer. Its work runs in order and to the end, even if the waiting task is cancelled."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call ``function(*args)`` on the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def end(self) -> None:
        """End the thread once it has finished its work."""
        self._pool.shutdown(wait=False)


async def unit(db: aiosqlite.Connection, function: Callable[..., T], *args: Any) -> T:
    """Call ``function(*args)`` on the thread. aiosqlite has only a private name for this, so its version is pinned."""
    result: T = await db._execute(function, *args)  # type: ignore[no-untyped-call]  # noqa: SLF001
    return result
