"""Watches a server that reports no changes: its list is read again and again, and compared."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

from sandbox_console.errors import ConsoleError
from sandbox_console.model.event import BackendEvent, Changed, HealthChanged, Listed, Removed
from sandbox_console.model.sandbox import BackendHealth, HostKey, Sandbox, SandboxRef

EVERY_S = 2.0
FRESH_S = 1.0
"""For this long after a list, it is known whether the server answers: a slow or frozen one is not asked twice."""
_SETTLE_S = 0.05

Look = Callable[[], Awaitable[tuple[BackendHealth, Sequence[Sandbox]]]]
Down = Callable[[ConsoleError], BackendHealth]


class Polling:
    """The watchers of one backend. :meth:`wake` makes them look at once, after a change of our own."""

    def __init__(self, look: Look, down: Down, every_s: float = EVERY_S) -> None:
        self._look, self._down, self._every_s = look, down, every_s
        self._wakers: set[asyncio.Event] = set()
        self._told: tuple[float, BackendHealth] | None = None

    async def rows(self) -> Sequence[Sandbox]:
        """The list. Raises a ConsoleError."""
        try:
            health, rows = await self._look()
        except ConsoleError as error:
            self._told = time.monotonic(), self._down(error)
            raise
        self._told = time.monotonic(), health
        return rows

    async def health(self) -> BackendHealth:
        """Whether the server answers: what the last list told, once, else asked now. Raises only CancelledError."""
        told, self._told = self._told, None
        if told is not None and time.monotonic() - told[0] < FRESH_S:
            return told[1]
        try:
            return (await self._look())[0]
        except ConsoleError as error:
            return self._down(error)

    def wake(self) -> None:
        """Make every watcher look now."""
        for one in self._wakers:
            one.set()

    async def events(self) -> AsyncGenerator[BackendEvent, None]:
        """Health and the list first, then each change; after each outage both again."""
        waker = asyncio.Event()
        self._wakers.add(waker)
        reported: BackendHealth | None = None
        known: dict[SandboxRef, Sandbox] | None = None
        try:
            while True:
                waker.clear()
                began = time.monotonic()
                try:
                    health, rows = await self._look()
                    now = {one.ref: one for one in rows}
                except ConsoleError as error:
                    health, now, known = self._down(error), {}, None
                if health != reported:
                    reported = health
                    yield HealthChanged(health)
                if health.ok:
                    for event in differences((health.backend, health.host), known, now):
                        yield event
                    known = now
                await self._rest(waker, time.monotonic() - began)
        finally:
            self._wakers.discard(waker)

    async def _rest(self, waker: asyncio.Event, took_s: float) -> None:
        """Wait at least as long as the answer took, so that a slow server is asked half of the time at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(self._every_s, took_s)):
                await waker.wait()
        await asyncio.sleep(max(_SETTLE_S, min(took_s, self._every_s)))


def differences(
    key: HostKey, known: Mapping[SandboxRef, Sandbox] | None, now: Mapping[SandboxRef, Sandbox]
) -> Iterable[BackendEvent]:
    """The events that lead from one list of a host to the next; the whole list if ``known`` is None."""
    if known is None:
        yield Listed(*key, tuple(now.values()))
        return
    for ref in known.keys() - now.keys():
        yield Removed(ref)
    for ref, sandbox in now.items():
        if known.get(ref) != sandbox:
            yield Changed(sandbox)
