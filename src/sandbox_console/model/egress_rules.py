"""Works out how an action changes egress rules: which are added, replaced and removed, and what more gets out."""

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
    """The rules after an action. Raises UsageError if a pattern to remove has no rule."""
    if isinstance(action, DenyEgress):
        added = [EgressRule(pattern, Effect.DENY, action.until, LIVE) for pattern in action.patterns]
        # An allow rule of the same pattern stays: it takes effect again when a temporary denial is over.
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
    """Replace the rules of a pattern; an allow rule stays beside a deny rule, which may be temporary."""
    replaced = (rule.effect, Effect.DENY)
    same = [one for one in rules if key_of(one.pattern) == key_of(rule.pattern) and one.effect in replaced]
    if any(one.effect is rule.effect and one.until is None for one in same):
        rule = next(one for one in same if one.effect is rule.effect and one.until is None)  # permanent wins
    return [*(one for one in rules if one not in same), rule]


def listed_anew(rules: Sequence[EgressRule], old: Sequence[str], new: Sequence[str]) -> tuple[EgressRule, ...]:
    """The rules after a spec's list of hosts was changed from ``old`` to ``new``.

    What was decided while the sandbox ran stays: rules that deny, rules for a time, and hosts of both lists whose rule
    was removed. A host that leaves the list is no longer allowed, whoever allowed it for good.
    """
    before, after = ({key_of(pattern) for pattern in patterns} for patterns in (old, new))

    def stays(rule: EgressRule) -> bool:
        if rule.effect is Effect.DENY or rule.until is not None or key_of(rule.pattern) in after:
            return True
        return rule.source == LIVE and key_of(rule.pattern) not in before

    kept = [rule for rule in rules if stays(rule)]
    allowed = {key_of(rule.pattern) for rule in kept if rule.effect is Effect.ALLOW and rule.until is None}
    added = {key: pattern for pattern in new if (key := key_of(pattern)) not in before | allowed}
    return (*kept, *(EgressRule(pattern) for pattern in added.values()))


def opened(before: Sequence[EgressRule], after: Sequence[EgressRule]) -> tuple[str, ...]:
    """The patterns that let more out than before: new allow rules, and allow rules that a deny rule stops covering."""
    allows = [rule for rule in after if rule.effect is Effect.ALLOW]
    found = [rule.pattern for rule in allows if rule not in before]
    gone = [rule for rule in before if rule.effect is Effect.DENY and rule not in after]
    found += [narrow for denial in gone for allow in allows if (narrow := _both(denial.pattern, allow.pattern))]
    return tuple(dict.fromkeys(found))


def _both(one: str, other: str) -> str:
    """The narrower of two patterns if one is within the other, else an empty string. Ports are ignored."""
    try:
        first, second = (replace(hosts.parse(text, allow_ip=True), ports=hosts.DEFAULT_PORTS) for text in (one, other))
    except ValueError:
        return ""
    return one if hosts.covers(second, first) else other if hosts.covers(first, second) else ""


def key_of(pattern: str) -> hosts.HostPattern | str:
    """The key of a pattern: two spellings of one pattern are one rule."""
    try:
        return hosts.parse(pattern, allow_ip=True)
    except ValueError:
        return pattern


def rule_problems(action: EgressAction, *, allow_ip: bool) -> dict[str, str]:
    """What is wrong with an action's patterns; empty when nothing is. Denying an address needs no opt-in."""
    if isinstance(action, DenyEgress):
        patterns = [(pattern, True) for pattern in action.patterns]
    else:
        patterns = [(rule.pattern, allow_ip or rule.effect is Effect.DENY) for rule in action.add]
    if not patterns and not (isinstance(action, ChangeEgress) and action.remove):
        return {"egress": "no pattern is named"}
    for pattern, ip in patterns:
        try:
            hosts.parse(pattern, allow_ip=ip)
        except ValueError as error:
            return {"egress": str(error)}
    return {}


def split_target(text: str) -> tuple[str, int]:
    """Read HOST or HOST:PORT; the default port is 443. Raises UsageError."""
    if not text.strip():
        raise UsageError("a host is needed, and '' is none", hint="write example.com, or example.com:8443")
    if "://" in text:
        bare = text.partition("://")[2].partition("/")[0]
        raise UsageError(f"{text!r} has a scheme; write only the host, as in {bare!r}")
    if hosts.parse_address(text) is not None:  # the colons of an IPv6 address are not a port's
        return text, 443
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, 443
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError(f"{text!r} has a port that is not a number from 1 to 65535")
    return host, int(port)
