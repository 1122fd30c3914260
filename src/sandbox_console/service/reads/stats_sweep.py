"""Samples running sandboxes off screen from time to time, so that sorting by CPU or memory includes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing

from sandbox_console.model.event import Event, Sampled
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Stats, Status
from sandbox_console.service.reads.fleet import Fleet

EVERY_S = 30.0
AT_ONCE = 4
SOON_EVERY_S = 5.0
SOON_AT_ONCE = 32
SAMPLE_S = 1.0
"""A share of CPU needs two samples, a second apart: 100 sandboxes cost an engine 0.3 % of a core.

While somebody sorts or filters by them, at most SOON_AT_ONCE are sampled a second, 3 % of a core. The figures of 100
sandboxes are then at most 10 s old, those of 1,000 at most 40 s.
"""

PATIENCE_S = 10.0


class Sweep:
    """One task that samples in rounds. ``sandboxes`` returns all there are, ``streamed`` those sampled anyway."""

    def __init__(
        self,
        fleet: Fleet,
        publish: Callable[[Event], None],
        sandboxes: Callable[[], Iterable[Sandbox]],
        streamed: Callable[[SandboxRef], bool],
    ) -> None:
        self._fleet = fleet
        self._publish = publish
        self._sandboxes = sandboxes
        self._streamed = streamed
        self._task: asyncio.Task[None] | None = None
        self._soon = asyncio.Event()

    def start(self) -> None:
        """Begin. Does nothing if it is already running."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._round())

    def hurry(self, soon: bool) -> None:
        """Sample without long pauses from now on or, if not ``soon``, with them again."""
        if soon == self._soon.is_set():
            return
        if not soon:
            self._soon.clear()
            return
        self._soon.set()
        if self._task is not None:  # a slow round of many sandboxes takes minutes
            self._task.cancel()
            self._task = asyncio.create_task(self._round(self._task))

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _round(self, before: asyncio.Task[None] | None = None) -> None:
        if before is not None:
            await asyncio.wait([before])
        while True:
            if before is None:
                await asyncio.sleep(SOON_EVERY_S if self._soon.is_set() else EVERY_S)
            before = None
            limit = asyncio.Semaphore(SOON_AT_ONCE if self._soon.is_set() else AT_ONCE)
            refs = [
                sandbox.ref
                for sandbox in self._sandboxes()
                if sandbox.status is Status.RUNNING and not self._streamed(sandbox.ref)
            ]
            async with asyncio.TaskGroup() as group:
                for ref in refs:
                    group.create_task(self._one(ref, limit))

    async def _one(self, ref: SandboxRef, limit: asyncio.Semaphore) -> None:
        async with limit:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._sample(ref)
            except Exception:  # noqa: BLE001 - a sandbox that ended, or a backend's bug, costs this row its figures alone
                return

    async def _sample(self, ref: SandboxRef) -> None:
        backend = await self._fleet.use(ref.backend, ref.host)
        last: Stats | None = None
        count = 0
        async with aclosing(backend.stats(ref, SAMPLE_S)) as samples:  # type: ignore[type-var]
            async for sample in samples:
                last, count = sample, count + 1
                if count == 2:
                    break
        if last is not None:
            self._publish(Sampled(ref, last))
