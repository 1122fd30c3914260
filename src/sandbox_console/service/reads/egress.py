"""The egress of sandboxes: rules, records, explanations, and the whole fleet's feed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress

from sandbox_console.backends.abilities import Egress, able
from sandbox_console.egress.decide import verdict
from sandbox_console.errors import ConsoleError, NotFound, Unsupported
from sandbox_console.model.action import EgressAction
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.egress_rules import changed, opened
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.denials import DenialFeed, Refused, Seen, has_gateway, masked_host
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.host_requests import HostRequests, unanswered
from sandbox_console.service.reads.traffic import Replayed, Traffic, replay

TEMPLATE = "template"
"""The label that sandboxes of one template share."""


class Outbound:
    """Reads of egress. Each raises Unsupported, with the reason, if a backend has none."""

    def __init__(
        self, fleet: Fleet, denials: DenialFeed, asks: HostRequests, vault: Vault, audit_log: AuditLog
    ) -> None:
        self._fleet = fleet
        self._asks = asks
        self._audit_log = audit_log
        self._vault = vault
        self._denials = denials

    async def state(self, ref: SandboxRef) -> EgressState:
        """The current rules, and whether the gateway answers."""
        return await (await self._able(ref)).egress(ref)

    async def explain(self, ref: SandboxRef, host: str, port: int) -> tuple[EgressVerdict, EgressRule | None]:
        """What the rules say about a host and port, with the rule that decides. Connects to nothing."""
        rules = (await self.state(ref)).rules
        decision = verdict(rules, host, port, now=time.time())
        effect = Effect.ALLOW if decision.allowed else Effect.DENY
        return decision, next((rule for rule in rules if rule.pattern == decision.rule and rule.effect is effect), None)

    def would_pass(self, patterns: Iterable[str], host: str, port: int) -> EgressVerdict:
        """What a gateway with these patterns as rules would decide about a host and port. Connects to nothing."""
        return verdict([EgressRule(pattern) for pattern in patterns], host, port)

    def preview(self, rules: Sequence[EgressRule], action: EgressAction) -> Sequence[EgressRule]:
        """The rules as an action would leave them."""
        return changed(rules, action)

    def opened(self, before: Sequence[EgressRule], after: Sequence[EgressRule]) -> Sequence[str]:
        """The patterns that let more out than before."""
        return opened(before, after)

    async def records(
        self, ref: SandboxRef, *, since: float | None = None, follow: bool = False
    ) -> AsyncIterator[EgressRecord]:
        """A sandbox's recorded decisions, oldest first, with known secrets masked in the hosts that it chose."""
        gateway = await self._able(ref)
        with suppress(NotFound):  # the read itself reports that
            spec = (await self._fleet.inspect(ref)).spec
            await self._vault.learn(spec.secrets if spec else ())
        async for record in gateway.egress_records(ref, since=since, follow=follow):
            yield masked_host(record, self._vault)

    async def replay(self, ref: SandboxRef, rules: Sequence[EgressRule]) -> Sequence[Replayed]:
        """What a draft would have decided about recorded traffic."""
        traffic = Traffic()
        async for record in self.records(ref):
            traffic.add(record)
        return await asyncio.to_thread(replay, traffic.tallies, rules)

    async def feed(
        self, *, since: float | None = None, follow: bool = False, refused: Refused = lambda *_: None,
        answered: Callable[[Sequence[BackendHealth]], None] = lambda _: None,
    ) -> AsyncIterator[Seen]:  # fmt: skip
        """The records of every sandbox that has a gateway, and pending requests to allow a host.

        With ``follow``, sandboxes that are made later are included.

        ``refused`` is called for each sandbox whose records cannot be read. With ``follow`` they are tried again, and
        it is called with None once they can be read. ``answered`` is called with the hosts that answered, except
        with ``follow``.
        """
        if follow:
            self._asks.start()
            async with aclosing(self._denials.follow(since, refused)) as news:  # type: ignore[type-var]
                async for seen in news:
                    yield seen
        asks = await unanswered(self._audit_log)
        sandboxes, healths = await self._fleet.listing()
        answered(healths)
        for sandbox in sandboxes:
            if has_gateway(sandbox):
                async for record in self._read(sandbox, since, refused):
                    yield sandbox, record
                for ask in asks:
                    if ask.target == str(sandbox.ref) and (since is None or ask.at >= since):
                        yield sandbox, masked_host(ask.record(sandbox.name), self._vault)

    async def _read(self, sandbox: Sandbox, since: float | None, refused: Refused) -> AsyncIterator[EgressRecord]:
        try:
            async for record in self.records(sandbox.ref, since=since):
                yield record
        except (NotFound, Unsupported):
            return  # the list shows that
        except ConsoleError as error:
            refused(sandbox, error)

    async def _able(self, ref: SandboxRef) -> Egress:
        return able(await self._fleet.use(ref.backend, ref.host), Egress, Capability.EGRESS_ALLOWLIST)


def same_template(sandbox: Sandbox, others: Iterable[Sandbox]) -> Sequence[Sandbox]:
    """The sandboxes with a gateway that were made from the same template, including this one.

    The same template means an equal label ``template`` if it has one, or else the same image on the same backend.
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
