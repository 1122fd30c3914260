"""Samples of a running microVM, from the runtime's own metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from sandbox_console.backends.microsandbox import sdk
from sandbox_console.backends.microsandbox.sdk import result
from sandbox_console.model.sandbox import Stats

QUIET_S = 3.0
"""After this long without a new sample, the sandbox's state is checked, as the last one repeats after its end."""


async def read(module: Any, handle: Any, interval_s: float) -> AsyncGenerator[Stats, None]:
    """A sample about every ``interval_s`` until the sandbox stops. The runtime itself takes one per second."""
    machine = await sdk.call(module, f"sandbox {handle.name}", handle.connect())
    stream = await sdk.call(module, f"sandbox {handle.name}", machine.metrics_stream(max(interval_s, 0.1)))
    before: Any = None
    while (sample := await _new(module, handle, stream, before)) is not None:
        yield _stats(sample, before)
        before = sample


async def _new(module: Any, handle: Any, stream: Any, before: Any) -> Any | None:
    """The next sample that differs; None if the sandbox has ended."""
    waiting: asyncio.Future[Any] | None = None
    asked_at = time.monotonic()
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(stream, None))
            done, _ = await asyncio.wait({waiting}, timeout=QUIET_S)
            if done:
                sample, waiting = waiting.result(), None
                if sample is None or before is None or sample.timestamp_ms != before.timestamp_ms:
                    return sample
            if time.monotonic() - asked_at >= QUIET_S:
                asked_at = time.monotonic()
                if str((await result(handle.refresh())).status) in ("stopped", "crashed"):
                    return None
    except module.MicrosandboxError:
        return None  # it stopped, or was removed
    finally:
        if waiting is not None:
            waiting.cancel()


def _stats(now: Any, before: Any) -> Stats:
    took = (now.timestamp_ms - before.timestamp_ms) / 1000 if before is not None else 0.0

    def rate(field: str) -> float | None:
        return max(0.0, (getattr(now, field) - getattr(before, field)) / took) if took > 0 else None

    return Stats(
        at=now.timestamp_ms / 1000,
        cpu_percent=float(now.cpu_percent),
        memory_bytes=int(now.memory_bytes),
        memory_limit=int(now.memory_limit_bytes),
        net_rx=rate("net_rx_bytes"),
        net_tx=rate("net_tx_bytes"),
        block_read=rate("disk_read_bytes"),
        block_write=rate("disk_write_bytes"),
    )
