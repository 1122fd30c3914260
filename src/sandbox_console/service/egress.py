"""Changing what a sandbox may reach: the rules as they will be, and whether the gateway then goes by them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sandbox_console.backends.abilities import Egress
from sandbox_console.egress.decide import verdict
from sandbox_console.errors import BackendError, Conflict, UsageError
from sandbox_console.model import hosts
from sandbox_console.model.action import ChangeEgress, DenyEgress, EgressAction, Permit
from sandbox_console.model.egress import Effect, EgressRule, EgressVerdict
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.describe import rule_data

SETTLE_S = 5.0
"""How long a gateway may take to go by new rules."""
_AGAIN_S = 0.2
LIVE = "live"
"""The source of a rule that was added while the sandbox ran."""


def changed(rules: Sequence[EgressRule], action: EgressAction) -> tuple[EgressRule, ...]:
    """The rules after an action. Raises UsageError for a pattern to take away that has no rule."""
    if isinstance(action, DenyEgress):
        added = [EgressRule(pattern, Effect.DENY, action.until, LIVE) for pattern in action.patterns]
        # An allow of the same pattern stays: it holds again when a denial for a time is over.
        gone = {key_of(rule.pattern) for rule in added}
        kept = [rule for rule in rules if rule.effect is Effect.ALLOW or key_of(rule.pattern) not in gone]
        return (*kept, *added)
    known = {key_of(rule.pattern) for rule in rules}
    for pattern in action.remove:
        if key_of(pattern) not in known:
            raise UsageError(f"no rule is for {pattern!r}", hint="egress show lists them")
    gone = {key_of(pattern) for pattern in action.remove}
    kept = [rule for rule in rules if key_of(rule.pattern) not in gone]
    for rule in action.add:
        kept = _added(kept, rule)
    return tuple(kept)


def _added(rules: list[EgressRule], rule: EgressRule) -> list[EgressRule]:
    """With a rule in place of those of the same pattern; an allow stays beside a denial, which may be for a time."""
    replaced = (rule.effect, Effect.DENY)
    same = [one for one in rules if key_of(one.pattern) == key_of(rule.pattern) and one.effect in replaced]
    if any(one.effect is rule.effect and one.until is None for one in same):
        rule = next(one for one in same if one.effect is rule.effect and one.until is None)  # for good beats for a time
    return [*(one for one in rules if one not in same), rule]


def opened(before: Sequence[EgressRule], after: Sequence[EgressRule]) -> tuple[str, ...]:
    """The patterns by which more gets out than before: new allows, and what a denial no longer keeps from an allow."""
    allows = [rule for rule in after if rule.effect is Effect.ALLOW]
    found = [rule.pattern for rule in allows if rule not in before]
    gone = [rule for rule in before if rule.effect is Effect.DENY and rule not in after]
    found += [narrow for denial in gone for allow in allows if (narrow := _both(denial.pattern, allow.pattern))]
    return tuple(dict.fromkeys(found))


def _both(one: str, other: str) -> str:
    """The narrower of two patterns where one lies within the other, else nothing; ports are left aside."""
    try:
        first, second = (replace(hosts.parse(text, allow_ip=True), ports=hosts.DEFAULT_PORTS) for text in (one, other))
    except ValueError:
        return ""
    return one if hosts.covers(second, first) else other if hosts.covers(first, second) else ""


def key_of(pattern: str) -> hosts.HostPattern | str:
    """Two spellings of one pattern are one rule."""
    try:
        return hosts.parse(pattern, allow_ip=True)
    except ValueError:
        return pattern


def rule_problems(action: EgressAction, *, allow_ip: bool) -> dict[str, str]:
    """What is wrong with an action's patterns; empty when nothing is. To deny an address needs no opt-in."""
    if isinstance(action, DenyEgress):
        asked = [(pattern, True) for pattern in action.patterns]
    else:
        asked = [(rule.pattern, allow_ip or rule.effect is Effect.DENY) for rule in action.add]
    if not asked and not (isinstance(action, ChangeEgress) and action.remove):
        return {"egress": "no pattern is named"}
    for pattern, ip in asked:
        try:
            hosts.parse(pattern, allow_ip=ip)
        except ValueError as error:
            return {"egress": str(error)}
    return {}


async def change(
    gateway: Egress, permit: Permit, action: EgressAction, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Put the rules in force and ask the gateway what it decides now.

    Gives ``before`` and ``after``, and for each pattern what ``checked`` says: as asked (``ok``), or which rule stands
    in the way; of one that was taken away, whether the gateway goes by the rules that are left. ``unchecked`` is why
    the gateway could not be asked.
    """
    before = (await gateway.egress(action.ref)).rules
    after = changed(before, action)
    await gateway.set_egress(permit, action.ref, after)
    progress("asking the gateway")
    wanted = [*_asked(action), *_left(action, after)]
    details: dict[str, Any] = {
        "before": [rule_data(rule) for rule in before],
        "after": [rule_data(rule) for rule in after],
        "checked": [],
        "unchecked": "",
    }
    try:
        details["checked"] = [await _check(gateway, permit, action.ref, rule, allow=allow) for rule, allow in wanted]
    except (BackendError, Conflict) as error:  # the rules are kept: it goes by them when it runs (again)
        details["unchecked"] = error.message
    return details


def _asked(action: EgressAction) -> Sequence[tuple[EgressRule, bool]]:
    """What an action adds, and whether it is to be allowed; an allow that it denies as well waits for its time."""
    if isinstance(action, DenyEgress):
        return [(EgressRule(pattern, Effect.DENY), False) for pattern in action.patterns]
    denied = {key_of(rule.pattern) for rule in action.add if rule.effect is Effect.DENY}
    asked = [(rule, rule.effect is Effect.ALLOW) for rule in action.add]
    return [(rule, allow) for rule, allow in asked if not allow or key_of(rule.pattern) not in denied]


def _left(action: EgressAction, after: Sequence[EgressRule]) -> Sequence[tuple[EgressRule, bool]]:
    """What an action takes away for good, and what the rules that are left say to it."""
    if isinstance(action, DenyEgress):
        return []
    added = {key_of(rule.pattern) for rule in action.add}
    gone = [one for one in action.remove if (key := key_of(one)) not in added and isinstance(key, hosts.HostPattern)]
    return [(EgressRule(one), verdict(after, *example(one), time.time()).allowed) for one in gone]


async def _check(gateway: Egress, permit: Permit, ref: SandboxRef, rule: EgressRule, *, allow: bool) -> dict[str, Any]:
    host, port = example(rule.pattern)
    until = time.monotonic() + SETTLE_S
    while True:
        found = await gateway.probe_egress(permit, ref, host, port)
        if found.allowed is allow or time.monotonic() > until:
            return _told(rule, host, port, found) | {"ok": found.allowed is allow}
        await asyncio.sleep(_AGAIN_S)


def _told(rule: EgressRule, host: str, port: int, found: EgressVerdict) -> dict[str, Any]:
    verdict = {"allowed": found.allowed, "reason": found.reason, "rule": found.rule, "hint": found.hint}
    return {"pattern": rule.pattern, "host": host, "port": port} | verdict


def example(pattern: str) -> tuple[str, int]:
    """A host and port that a pattern matches, to ask about. Raises ValueError for one that cannot be read."""
    found = hosts.parse(pattern, allow_ip=True)
    port = 443 if 443 in found.ports else min(found.ports)
    if found.network is not None:
        return str(found.network[0]), port
    return (f"any.{found.host}" if found.wildcard else found.host), port
