"""Changes what a sandbox may reach, and checks that its gateway applies the new rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from sandbox_console.backends.abilities import Egress
from sandbox_console.egress.decide import verdict
from sandbox_console.errors import BackendError, Conflict
from sandbox_console.model import hosts
from sandbox_console.model.action import DenyEgress, EgressAction, Permit
from sandbox_console.model.egress import Effect, EgressRule, EgressVerdict
from sandbox_console.model.egress_rules import changed, key_of, listed_anew
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service.gate.description import rule_data

SETTLE_S = 5.0
"""How long a gateway may take to apply new rules."""
_AGAIN_S = 0.2


async def change(
    gateway: Egress, permit: Permit, action: EgressAction, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Apply the rules and ask the gateway what it decides now.

    Returns ``before`` and ``after``, and ``checked`` for each pattern: ``ok`` if it is as requested, else the rule that
    is in the way. For a pattern that was removed, it says whether the gateway applies the remaining rules.
    ``unchecked`` is why the gateway could not be queried.
    """
    before = (await gateway.egress(action.ref)).rules
    after = changed(before, action)
    await gateway.set_egress(permit, action.ref, after)
    wanted = [*_asked(action), *_left(action, after)]
    return await _checked(gateway, permit, action.ref, before, after, wanted, progress)


async def relist(
    gateway: Egress, permit: Permit, ref: SandboxRef, old: Sequence[str], new: Sequence[str],
    progress: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    """Apply a spec's changed list of hosts to the running gateway. Returns what `change` does."""
    before = (await gateway.egress(ref)).rules
    after = listed_anew(before, old, new)
    await gateway.set_egress(permit, ref, after)
    moved = [one for one in (*old, *new) if (one in old) is not (one in new)]
    wanted = [(EgressRule(one), verdict(after, *example(one), time.time()).allowed) for one in moved]
    return await _checked(gateway, permit, ref, before, after, wanted, progress)


async def decided_live(backend: object, sandbox: Sandbox, new: SandboxSpec) -> Sequence[EgressRule]:
    """The rules of a sandbox that replaces one: what was decided while it ran stays, as after a live change.

    Otherwise a change of its memory would let out what somebody denied. Empty if the rules of its spec are the right
    ones. Raises Conflict if the rules in force are not known.
    """
    old = sandbox.spec
    if old is None or not (old.egress and new.egress) or not isinstance(backend, Egress):
        return ()
    state = await backend.egress(sandbox.ref)
    if not state.rules and state.gateway:
        hint = "remove it and create it again, with the rules of its spec"
        raise Conflict(f"its egress rules are not known: {state.gateway}", hint=hint)
    after = listed_anew(state.rules, old.egress, new.egress)
    return () if {*after} == {EgressRule(pattern) for pattern in new.egress} else after


async def _checked(
    gateway: Egress, permit: Permit, ref: SandboxRef, before: Sequence[EgressRule], after: Sequence[EgressRule],
    wanted: Sequence[tuple[EgressRule, bool]], progress: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    progress("asking the gateway")
    details: dict[str, Any] = {
        "before": [rule_data(rule) for rule in before],
        "after": [rule_data(rule) for rule in after],
        "checked": [],
        "unchecked": "",
    }
    try:
        details["checked"] = [await _check(gateway, permit, ref, rule, allow=allow) for rule, allow in wanted]
    except (BackendError, Conflict) as error:  # the rules are stored: it applies them when it runs again
        details["unchecked"] = error.message
    return details


def _asked(action: EgressAction) -> Sequence[tuple[EgressRule, bool]]:
    """What an action adds, and whether it should be allowed then. An allow rule that it also denies is left out."""
    if isinstance(action, DenyEgress):
        return [(EgressRule(pattern, Effect.DENY), False) for pattern in action.patterns]
    denied = {key_of(rule.pattern) for rule in action.add if rule.effect is Effect.DENY}
    rules = [(rule, rule.effect is Effect.ALLOW) for rule in action.add]
    return [(rule, allow) for rule, allow in rules if not allow or key_of(rule.pattern) not in denied]


def _left(action: EgressAction, after: Sequence[EgressRule]) -> Sequence[tuple[EgressRule, bool]]:
    """What an action removes for good, and what the remaining rules say about it."""
    if isinstance(action, DenyEgress):
        return []
    added = {key_of(rule.pattern) for rule in action.add}
    gone = [one for one in action.remove if (key := key_of(one)) not in added and isinstance(key, hosts.HostPattern)]
    return [(EgressRule(one), verdict(after, *example(one), time.time()).allowed) for one in gone]


async def _check(gateway: Egress, permit: Permit, ref: SandboxRef, rule: EgressRule, *, allow: bool) -> dict[str, Any]:
    host, port = example(rule.pattern)
    until = time.monotonic() + SETTLE_S
    while True:
        verdict = await gateway.probe_egress(permit, ref, host, port)
        if verdict.allowed is allow or time.monotonic() > until:
            return _check_result(rule, host, port, verdict) | {"ok": verdict.allowed is allow}
        await asyncio.sleep(_AGAIN_S)


def _check_result(rule: EgressRule, host: str, port: int, found: EgressVerdict) -> dict[str, Any]:
    verdict = {"allowed": found.allowed, "reason": found.reason, "rule": found.rule, "hint": found.hint}
    return {"pattern": rule.pattern, "host": host, "port": port} | verdict


def example(pattern: str) -> tuple[str, int]:
    """A host and port that match a pattern, for a query. Raises ValueError for an invalid pattern."""
    host_pattern = hosts.parse(pattern, allow_ip=True)
    port = 443 if 443 in host_pattern.ports else min(host_pattern.ports)
    if host_pattern.network is not None:
        return str(host_pattern.network[0]), port
    return (f"any.{host_pattern.host}" if host_pattern.wildcard else host_pattern.host), port
