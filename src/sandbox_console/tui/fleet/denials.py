"""What the sandboxes in view were refused: their gateways' records, followed and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing

from sandbox_console.errors import ConsoleError, NotFound, Unsupported
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Console, has_gateway
from sandbox_console.tui.state.fleet_state import News, Refused

BATCH_S = 0.25
"""A guest may try thousands of hosts: what came meanwhile is one piece of news a sandbox."""
AGAIN_S = 5.0
"""Records that were refused are asked for again, at the earliest after this."""


class DenialWatch:
    """One reader for each sandbox in view that has a gateway; each record is counted once."""

    def __init__(self, console: Console, deliver: Callable[[Sequence[News]], object]) -> None:
        self._console = console
        self._deliver = deliver
        self._readers: dict[SandboxRef, asyncio.Task[None]] = {}
        self._since: dict[SandboxRef, float] = {}
        self._news: dict[SandboxRef, Refused] = {}
        self._again: dict[SandboxRef, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def show(self, sandboxes: Iterable[Sandbox]) -> None:
        """Follow just these from now on. A reader that ended had it all: it starts again when shown again."""
        wanted = {one.ref for one in sandboxes if has_gateway(one)}
        now = asyncio.get_running_loop().time()
        for ref in [ref for ref, at in self._again.items() if at <= now]:
            del self._again[ref]
            self._readers.pop(ref, None)
        for ref in self._readers.keys() - wanted:
            self._readers.pop(ref).cancel()
        for ref in wanted - self._readers.keys():
            self._readers[ref] = asyncio.create_task(self._read(ref))

    async def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
        readers = list(self._readers.values())
        self._readers.clear()
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    async def _read(self, ref: SandboxRef) -> None:
        since = self._since.get(ref)
        try:
            async with aclosing(self._console.egress.records(ref, since=since, follow=True)) as records:  # type: ignore[type-var]
                async for record in records:
                    if record.at <= self._since.get(ref, 0.0):
                        continue
                    self._since[ref] = record.at
                    if not record.allowed:
                        self._count(ref, record.host, record.at)
        except (NotFound, Unsupported):
            return  # it is gone, or has no gateway: the list and the egress tab tell
        except ConsoleError:
            self._again[ref] = asyncio.get_running_loop().time() + AGAIN_S

    def _count(self, ref: SandboxRef, host: str, at: float) -> None:
        before = self._news.get(ref)
        self._news[ref] = Refused(ref, host, at, before.count + 1 if before else 1)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        news, self._news = list(self._news.values()), {}
        self._deliver(news)
