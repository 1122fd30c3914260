"""What a sandbox uses, and the limits that the runtime changes while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from sandbox_console.backends.a3s.client import Client, Place
from sandbox_console.errors import Conflict, ConsoleError, NotFound
from sandbox_console.model.sandbox import Stats
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from a3s_box import AsyncSandbox, ExecutionStats

_PERIOD_US = 100_000
_ALL_PIDS = (1 << 22) - 1
"""As many as Linux has at most: the runtime has no word for no limit."""


async def apply(client: Client, box: AsyncSandbox, spec: SandboxSpec | None, before: SandboxSpec | None = None) -> None:
    """Set the number of processes and the share of the CPUs. Raises a ConsoleError.

    Without ``before`` the sandbox was just started with whole CPUs, and with no limit of processes.
    """
    from a3s_box import ExecutionResourceUpdate

    if spec is None:
        return
    old_pids, old_cpus = (before.pids, before.cpus) if before is not None else (None, None)
    pids = (spec.pids or _ALL_PIDS) if spec.pids != old_pids else None
    quota = int(spec.cpus * _PERIOD_US) if spec.cpus and spec.cpus != old_cpus else None
    if quota is not None and before is None and quota % _PERIOD_US == 0:
        quota = None  # as many CPUs as it was created with
    if pids is None and quota is None:
        return
    period = _PERIOD_US if quota is not None else None
    update = ExecutionResourceUpdate(pids_limit=pids, cpu_quota=quota, cpu_period=period)
    await client.call("update", box.update_resources(update))


def not_paused(name: str, status: str) -> Conflict:
    """The error for a resume of what is not paused."""
    return Conflict(f"{name} is not paused: it is {status}")


async def samples(client: Client, place: Place, interval_s: float) -> AsyncGenerator[Stats, None]:
    """A sample every ``interval_s`` seconds, until this generation has ended."""
    before: ExecutionStats | None = None
    try:
        box = await client.box(place)
        while True:
            now = await client.call("stats", box.runtime_stats())
            yield _sample(before, now)
            before = now
            await asyncio.sleep(interval_s)
    except (Conflict, NotFound):  # it has ended
        return
    except ConsoleError:
        if before is None or (await client.inspected(place.id)).state in ("running", "paused"):
            raise


def _sample(before: ExecutionStats | None, now: ExecutionStats) -> Stats:
    busy = None
    if before is not None and now.timestamp_unix_ns > before.timestamp_unix_ns:
        used = now.cpu.usage_ns - before.cpu.usage_ns
        busy = max(0.0, 100 * used / (now.timestamp_unix_ns - before.timestamp_unix_ns))
    at = min(now.timestamp_unix_ns / 1e9, time.time())
    return Stats(at, busy, now.memory.usage_bytes, now.memory.limit_bytes, now.process_count)
