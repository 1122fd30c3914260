"""Egress rules as an action changes them: what is added, replaced and removed, and what more gets out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sandbox_console.errors import UsageError
from sandbox_console.model import hosts
from sandbox_console.model.action import ChangeEgress, DenyEgress, EgressAction
from sandbox_console.model.egress import Effect, EgressRule

LIVE = "live"
"""The source of a rule that was added while the sandbox ran."""


def changed(rules: Sequence[EgressRule], action: EgressAction) -> tuple[EgressRule, ...]:
    """The rules after an action. Raises UsageError for a pattern to remove that has no rule."""
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
    """The narrower of two patterns if one is within the other, else nothing; ports are ignored."""
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
