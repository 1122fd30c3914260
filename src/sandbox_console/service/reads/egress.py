"""What leaves sandboxes, as a face reads it: rules, records, why something is decided so, the whole fleet's feed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing

from sandbox_console.backends.abilities import Egress, able
from sandbox_console.egress.decide import verdict
from sandbox_console.errors import ConsoleError, NotFound, Unsupported
from sandbox_console.model.action import EgressAction
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.egress_rules import changed, opened
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.traffic import Replayed, Traffic, replay

TEMPLATE = "template"
"""The label by which sandboxes of one template know each other."""
_LIST_AGAIN_S = 3.0
_READ_AGAIN_S, _READ_SELDOM_S = 3.0, 60.0
_READS_S = 2.0
"""Records that are not refused for so long can be read."""
_WAITING_MOST = 1000

Seen = tuple[Sandbox, EgressRecord]
Refused = Callable[[Sandbox, ConsoleError | None], object]


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

    async def feed(
        self, *, since: float | None = None, follow: bool = False, refused: Refused = lambda *_: None
    ) -> AsyncIterator[Seen]:
        """The records of every sandbox that has a gateway; with ``follow`` also of those that are made later.

        ``refused`` is told of each whose records cannot be read; with ``follow`` they are asked for again, and it is
        told None when they can be.
        """
        news: asyncio.Queue[Seen] = asyncio.Queue(_WAITING_MOST)  # a slow reader holds the readers of files back
        readers: dict[SandboxRef, asyncio.Task[None]] = {}
        listing = asyncio.create_task(self._readers(news, readers, since, refused, follow=follow))
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
        refused: Refused,
        *,
        follow: bool,
    ) -> None:
        """Keep one reader a sandbox. One that ended is not started again while its sandbox is there: it had it all."""
        while True:
            sandboxes, _ = await self._fleet.listing()
            for sandbox in sandboxes:
                if has_gateway(sandbox) and sandbox.ref not in readers:
                    reading = self._read_on if follow else self._read
                    readers[sandbox.ref] = asyncio.create_task(reading(sandbox, news, since, refused))
            if not follow:
                await asyncio.gather(*readers.values())
                return
            await asyncio.sleep(_LIST_AGAIN_S)

    async def _read(self, sandbox: Sandbox, news: asyncio.Queue[Seen], since: float | None, refused: Refused) -> None:
        try:
            async with aclosing(self.records(sandbox.ref, since=since)) as records:  # type: ignore[type-var]
                async for record in records:
                    await news.put((sandbox, record))
        except (NotFound, Unsupported):
            return  # the list tells
        except ConsoleError as error:
            refused(sandbox, error)

    async def _read_on(
        self, sandbox: Sandbox, news: asyncio.Queue[Seen], since: float | None, refused: Refused
    ) -> None:
        last, pause = since or 0.0, _READ_AGAIN_S
        again: asyncio.TimerHandle | None = None
        while True:
            try:
                async with aclosing(self.records(sandbox.ref, since=since, follow=True)) as records:  # type: ignore[type-var]
                    async for record in records:
                        if again is None or record.at > last:
                            await news.put((sandbox, record))
                        last, since = max(last, record.at), max(last, record.at)
                return
            except (NotFound, Unsupported):
                refused(sandbox, None)  # there is nothing to read: the list tells
                return
            except ConsoleError as error:
                refused(sandbox, error)
            finally:
                if again is not None:
                    again.cancel()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _READ_SELDOM_S)  # a thousand of a dead engine's ask it too
            again = asyncio.get_running_loop().call_later(_READS_S, refused, sandbox, None)

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
