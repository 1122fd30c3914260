"""What leaves sandboxes, as a face reads it: rules, records, why something is decided so, the whole fleet's feed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing

from sandbox_console.backends.abilities import Egress
from sandbox_console.egress.decide import verdict
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import EgressAction
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service.abilities import able
from sandbox_console.service.egress import changed, opened
from sandbox_console.service.feed import Replayed, Traffic, replay
from sandbox_console.service.fleet import Fleet

TEMPLATE = "template"
"""The label by which sandboxes of one template know each other."""
_LIST_AGAIN_S = 3.0
_WAITING_MOST = 1000

Seen = tuple[Sandbox, EgressRecord]


class Outbound:
    """Reads of egress. Each raises Unsupported, with the reason, where a backend has none."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def state(self, ref: SandboxRef) -> EgressState:
        """The rules in force, and whether the gateway answers."""
        return await (await self._able(ref)).egress(ref)

    async def explain(self, ref: SandboxRef, host: str, port: int) -> tuple[EgressVerdict, EgressRule | None]:
        """What the rules say about a host and port, with the rule that decides. Nothing is connected, nobody asked."""
        rules = (await self.state(ref)).rules
        said = verdict(rules, host, port, now=time.time())
        effect = Effect.ALLOW if said.allowed else Effect.DENY
        return said, next((rule for rule in rules if rule.pattern == said.rule and rule.effect is effect), None)

    def preview(self, rules: Sequence[EgressRule], action: EgressAction) -> Sequence[EgressRule]:
        """The rules as an action would leave them."""
        return changed(rules, action)

    def opened(self, before: Sequence[EgressRule], after: Sequence[EgressRule]) -> Sequence[str]:
        """The patterns by which more gets out than before."""
        return opened(before, after)

    async def records(
        self, ref: SandboxRef, *, since: float | None = None, follow: bool = False
    ) -> AsyncIterator[EgressRecord]:
        """A sandbox's decisions on record, oldest first."""
        gateway = await self._able(ref)
        async for record in gateway.egress_records(ref, since=since, follow=follow):
            yield record

    async def replay(self, ref: SandboxRef, rules: Sequence[EgressRule]) -> Sequence[Replayed]:
        """What a draft would have decided about the traffic on record."""
        traffic = Traffic()
        async for record in self.records(ref):
            traffic.add(record)
        return await asyncio.to_thread(replay, traffic.tallies, rules)

    async def feed(self, *, since: float | None = None, follow: bool = False) -> AsyncIterator[Seen]:
        """The records of every sandbox that has a gateway; with ``follow`` also of those that are made later."""
        news: asyncio.Queue[Seen] = asyncio.Queue(_WAITING_MOST)  # a slow reader holds the readers of files back
        readers: dict[SandboxRef, asyncio.Task[None]] = {}
        listing = asyncio.create_task(self._readers(news, readers, since, follow=follow))
        try:
            while True:
                next_one = asyncio.create_task(news.get())
                try:
                    await asyncio.wait({next_one, listing}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not next_one.done():
                        next_one.cancel()
                if next_one.done() and not next_one.cancelled():
                    yield next_one.result()
                elif listing.done():
                    listing.result()
                    while not news.empty():
                        yield news.get_nowait()
                    return
        finally:
            for task in (listing, *readers.values()):
                task.cancel()
            await asyncio.gather(listing, *readers.values(), return_exceptions=True)

    async def _readers(
        self,
        news: asyncio.Queue[Seen],
        readers: dict[SandboxRef, asyncio.Task[None]],
        since: float | None,
        *,
        follow: bool,
    ) -> None:
        """Keep one reader a sandbox. One that ended is not started again while its sandbox is there: it had it all."""
        while True:
            sandboxes, _ = await self._fleet.listing()
            for sandbox in sandboxes:
                if has_gateway(sandbox) and sandbox.ref not in readers:
                    readers[sandbox.ref] = asyncio.create_task(self._read(sandbox, news, since, follow=follow))
            if not follow:
                await asyncio.gather(*readers.values())
                return
            await asyncio.sleep(_LIST_AGAIN_S)

    async def _read(self, sandbox: Sandbox, news: asyncio.Queue[Seen], since: float | None, *, follow: bool) -> None:
        try:
            async with aclosing(self.records(sandbox.ref, since=since, follow=follow)) as records:  # type: ignore[type-var]
                async for record in records:
                    await news.put((sandbox, record))
        except ConsoleError:
            return  # it is gone, or its backend is: the list tells

    async def _able(self, ref: SandboxRef) -> Egress:
        return able(await self._fleet.use(ref.backend, ref.host), Egress, Capability.EGRESS_ALLOWLIST)


def has_gateway(sandbox: Sandbox) -> bool:
    """Whether a sandbox was made with a way out at all."""
    return sandbox.managed and sandbox.spec is not None and bool(sandbox.spec.egress)


def same_template(sandbox: Sandbox, others: Iterable[Sandbox]) -> Sequence[Sandbox]:
    """Those made from the same template, itself among them, of those that have a gateway.

    The same template is the same label ``template`` where it has one, else the same image on the same backend.
    """
    mark = sandbox.labels.get(TEMPLATE)

    def alike(other: Sandbox) -> bool:
        if other.ref == sandbox.ref:
            return True
        if mark is not None:
            return has_gateway(other) and other.labels.get(TEMPLATE) == mark
        here = (other.ref.backend, other.ref.host) == (sandbox.ref.backend, sandbox.ref.host)
        return has_gateway(other) and here and TEMPLATE not in other.labels and other.image == sandbox.image

    return [other for other in others if alike(other)]
