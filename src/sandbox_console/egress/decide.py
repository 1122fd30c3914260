"""Finds the rule that decides about a host, a port and an address. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from sandbox_console.egress.addresses import Address, is_global, is_near, plain
from sandbox_console.egress.rule_files import in_force
from sandbox_console.model.egress import Effect, EgressRule, EgressVerdict
from sandbox_console.model.hosts import DEFAULT_PORTS, HostPattern, normalise, parse, parse_address


@lru_cache(maxsize=4096)
def _parsed(pattern: str) -> HostPattern | None:
    """A pattern that was accepted before. One that cannot be parsed matches nothing."""
    try:
        return parse(pattern, allow_ip=True)
    except ValueError:
        return None


def verdict(rules: Iterable[EgressRule], host: str, port: int, now: float | None = None) -> EgressVerdict:
    """What the rules say about a name or an IP literal, without resolving it.

    With ``now`` (seconds since the epoch), expired rules are skipped.
    """
    rules = tuple(rules) if now is None else in_force(rules, now)
    name = named(host)
    if not name:
        return EgressVerdict(False, "bad_host", hint="write a host name, or an address in its plain form")
    if rule := _first(rules, Effect.DENY, name, port):
        return EgressVerdict(False, "denied", rule.pattern)
    if rule := _first(rules, Effect.ALLOW, name, port):
        return EgressVerdict(True, "", rule.pattern)
    return EgressVerdict(False, "not_allowed", hint=_near(rules, name))


def address_verdict(rules: Sequence[EgressRule], address: Address, port: int, *, own: bool = False) -> EgressVerdict:
    """What the rules say about an address to which an allowed name resolves.

    An address that is not public must be allowed by a rule of its own. For an address of this machine or its link, or
    of a cloud's metadata service, the rule must name exactly that address; a rule for its network is not enough. A
    denied network is always refused.
    """
    text = str(plain(address))
    for one in {str(address), text}:
        if rule := _first(rules, Effect.DENY, one, port):
            return EgressVerdict(False, "denied", rule.pattern)
    own = own or is_near(address)
    if is_global(address) and not own:
        return EgressVerdict(True)
    if rule := _first(rules, Effect.ALLOW, text, port, exactly=own):
        return EgressVerdict(True, "", rule.pattern)
    if own and (rule := _first(rules, Effect.ALLOW, text, port)):
        return EgressVerdict(False, "own_host", hint=f"{rule.pattern} does not open it; write a rule for {text} itself")
    return EgressVerdict(False, "not_global", hint="a rule may name an address where the policy has egress_ip = true")


def named(host: str) -> str:
    """A host as rules and records write it: a normalised name or a plain address; empty if it is neither."""
    if (address := parse_address(host)) is not None:
        return str(address)
    try:
        return normalise(host)
    except ValueError:
        return ""


def _first(
    rules: Iterable[EgressRule], effect: Effect, host: str, port: int, *, exactly: bool = False
) -> EgressRule | None:
    for rule in rules:
        if rule.effect is effect and (pattern := _parsed(rule.pattern)) is not None:
            if exactly and (pattern.network is None or pattern.network.num_addresses > 1):
                continue
            every = effect is Effect.DENY and pattern.ports == DEFAULT_PORTS  # a deny rule without ports covers all
            if pattern.matches(host, min(pattern.ports) if every else port):
                return rule
    return None


def _near(rules: Iterable[EgressRule], host: str) -> str:
    for rule in rules:
        pattern = _parsed(rule.pattern)
        if rule.effect is not Effect.ALLOW or pattern is None:
            continue
        if pattern.matches(host, min(pattern.ports)):
            ports = " and ".join(map(str, sorted(pattern.ports)))
            return f"the rule {rule.pattern} allows port{'s' * (len(pattern.ports) > 1)} {ports} only"
        if pattern.wildcard and host == pattern.host:
            return f"the rule {rule.pattern} allows names below {host}, not {host} itself"
    return ""
