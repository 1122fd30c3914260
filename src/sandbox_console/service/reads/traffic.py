"""Counts by host what sandboxes reached and what they were refused, with first and last time. Pure and bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from sandbox_console.egress.addresses import Address, is_global
from sandbox_console.egress.decide import address_verdict, named, verdict
from sandbox_console.egress.rule_files import in_force
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressVerdict, Outcome
from sandbox_console.model.egress_rules import key_of
from sandbox_console.model.hosts import HostPattern, parse_address
from sandbox_console.model.sandbox import SandboxRef

HOSTS_MOST = 2000
"""A guest may request any number of names. Beyond this, the host not seen for longest is forgotten, and counted."""
_PORTS_MOST = 16
_MINUTES_MOST = 180


class HostSeen(Struct):
    """One host. Times are seconds since the epoch; ``reason`` and ``rule`` are those of the last decision.

    ``denied_at`` is when it was last denied, 0 if never. ``outcome`` is the last one. ``unresolved`` and ``failed`` are
    not denials, and no rule would help. ``asker`` is who last requested to have it allowed.
    """

    host: str
    allowed: int = 0
    denied: int = 0
    first: float = 0.0
    last: float = 0.0
    reason: str = ""
    rule: str = ""
    port: int = 443
    ports: set[int] = field(default_factory=set)
    refs: dict[SandboxRef, str] = field(default_factory=dict)
    sent_bytes: int = 0
    received_bytes: int = 0
    denied_at: float = 0.0
    unresolved: int = 0
    failed: int = 0
    outcome: Outcome = Outcome.ALLOWED
    asker: str = ""

    @property
    def trouble(self) -> int:
        """How often a connection was denied, not resolved or failed. A request to allow the host counts as one."""
        return self.denied + self.unresolved + self.failed + bool(self.asker)


class Feed:
    """Counts records by host."""

    def __init__(self, limit: int = HOSTS_MOST) -> None:
        self._most = limit
        self._hosts: dict[str, HostSeen] = {}
        self.forgotten = 0
        self.version = 0
        """This number changes with each record."""
        self.minutes: Counter[int] = Counter()
        """Denials, by the minute since the epoch in which they happened."""

    def add(self, ref: SandboxRef, name: str, record: EgressRecord) -> None:
        """Count a record. The end of an allowed connection adds its bytes and does not count as another."""
        self.version += 1
        host = self._hosts.pop(record.host, None) or HostSeen(record.host, first=record.at)
        self._hosts[record.host] = host  # the dictionary is ordered by the last record
        host.first, host.last = min(host.first, record.at), max(host.last, record.at)
        host.refs[ref] = name
        host.sent_bytes += record.sent_bytes
        host.received_bytes += record.received_bytes
        if record.ended and not record.reason:
            return
        host.port = record.port
        if len(host.ports) < _PORTS_MOST:
            host.ports.add(record.port)
        host.rule = record.rule
        self._count_outcome(host, record)
        if len(self._hosts) > self._most:
            del self._hosts[next(iter(self._hosts))]
            self.forgotten += 1

    def _count_outcome(self, host: HostSeen, record: EgressRecord) -> None:
        host.outcome, host.reason = record.outcome, record.reason
        match record.outcome:
            case Outcome.ALLOWED:
                host.allowed += not record.ended
            case Outcome.ASKED:
                host.asker = record.rule
            case Outcome.UNRESOLVED:
                host.unresolved += 1
            case Outcome.FAILED:
                host.allowed += record.allowed and not record.ended
                host.failed += 1
            case Outcome.DENIED if not record.allowed:
                host.denied += 1
                host.denied_at = max(host.denied_at, record.at)
                host.reason = record.reason or "not_allowed"
                self._count(Counter([int(record.at // 60)]))

    def denied_since(self, at: float) -> int:
        """How often something was denied since ``at`` (seconds since the epoch), to the minute."""
        first = int(at // 60)
        return sum(count for minute, count in self.minutes.items() if minute >= first)

    def _count(self, minutes: Counter[int]) -> None:
        self.minutes += minutes
        for minute in sorted(self.minutes)[:-_MINUTES_MOST]:
            del self.minutes[minute]

    def merge(self, feeds: Sequence[Feed]) -> None:
        """Add the hosts of other feeds, which are not changed."""
        every = [host for feed in feeds for host in feed.hosts()]
        for host in sorted(every, key=lambda host: host.last):
            before = self._hosts.pop(host.host, None)
            self._hosts[host.host] = _with(before, host) if before is not None else host
        self.shrink(max(0, len(self) - self._most))
        for feed in feeds:
            self.forgotten += feed.forgotten
            self._count(feed.minutes)

    def shrink(self, count: int) -> None:
        """Forget the hosts that were requested longest ago."""
        for host in list(self._hosts)[:count]:
            del self._hosts[host]
            self.forgotten += 1

    def __len__(self) -> int:
        return len(self._hosts)

    def hosts(self, *, denied_only: bool = False) -> Sequence[HostSeen]:
        """The hosts, most recently requested first; with ``denied_only``, those with any kind of ``trouble``."""
        return [host for host in reversed(self._hosts.values()) if host.trouble or not denied_only]


def _with(before: HostSeen, later: HostSeen) -> HostSeen:
    """One host of two feeds; the later feed decides."""
    return replace(
        later,
        allowed=before.allowed + later.allowed,
        denied=before.denied + later.denied,
        unresolved=before.unresolved + later.unresolved,
        failed=before.failed + later.failed,
        first=min(before.first, later.first),
        ports=before.ports | later.ports,
        refs=before.refs | later.refs,
        sent_bytes=before.sent_bytes + later.sent_bytes,
        received_bytes=before.received_bytes + later.received_bytes,
        denied_at=max(before.denied_at, later.denied_at),
        asker=later.asker or before.asker,
    )


class Replayed(Struct, frozen=True):
    """A host and port of recorded traffic under a draft, and how often it was requested.

    ``was`` is what was decided then, ``present`` what the current rules say (``was`` if they are not given),
    ``would`` the draft. ``rule`` and ``reason`` are the draft's; ``address_rule`` is what lets a private address pass.
    """

    host: str
    port: int
    count: int
    was: bool
    present: bool
    would: bool
    rule: str
    reason: str
    address_rule: str = ""

    @property
    def change(self) -> str:
        """What would change: "denied", "allowed", or empty if nothing changes."""
        return "" if self.present is self.would else ("allowed" if self.would else "denied")


Tally = tuple[int, EgressRecord]
"""How often a host and port were requested, and the record that represents them."""


class Traffic:
    """Recorded connections by host and port. What was allowed once counts as allowed.

    There are at most ``most`` of them. Past that, the one not seen for longest is forgotten, and counted.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._most = limit
        self._seen: dict[tuple[str, int], Tally] = {}
        self.forgotten = 0

    def add(self, record: EgressRecord) -> None:
        """Count a record; the end of an allowed connection does not count as another."""
        if record.ended and not record.reason:
            return
        key = (record.host, record.port)
        count, before = self._seen.pop(key, (0, record))
        self._seen[key] = (count + (not record.ended), before if before.allowed else record)
        if self._most is not None and len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]
            self.forgotten += 1

    @property
    def tallies(self) -> Sequence[Tally]:
        """The current counts, as a copy that can be replayed in a thread."""
        return list(self._seen.values())


def replay(
    tallies: Iterable[Tally],
    draft: Sequence[EgressRule],
    *,
    rules: Sequence[EgressRule] | None = None,
    now: float | None = None,
) -> Sequence[Replayed]:
    """What a draft says about recorded traffic, next to what the current rules say.

    What was refused for its form (a wrong server name, no TLS) would be refused again, whatever the draft says. Rules
    that have expired at ``now`` are ignored.
    """
    tried, present = _RuleIndex(draft, now), None if rules is None else _RuleIndex(rules, now)
    return [_replayed(record, count, tried, present) for count, record in tallies]


class _RuleIndex:
    """Rules indexed by what they name, because only a few of hundreds of rules can match one of thousands of hosts."""

    def __init__(self, rules: Sequence[EgressRule], now: float | None) -> None:
        self._rules = rules if now is None else in_force(rules, now)
        self._named: dict[str, list[int]] = {}
        self.networks: list[EgressRule] = []
        for at, rule in enumerate(self._rules):
            pattern = key_of(rule.pattern)
            if isinstance(pattern, HostPattern) and pattern.network is None:
                self._named.setdefault(pattern.host, []).append(at)
            elif isinstance(pattern, HostPattern):
                self.networks.append(rule)

    def about(self, host: str) -> Sequence[EgressRule]:
        """The rules that may match a host, in their order."""
        name = named(host)
        if parse_address(name) is not None:
            return self.networks
        labels = name.split(".")
        found = [at for start in range(len(labels)) for at in self._named.get(".".join(labels[start:]), ())]
        return [self._rules[at] for at in sorted(found)]


def _replayed(record: EgressRecord, count: int, draft: _RuleIndex, rules: _RuleIndex | None) -> Replayed:
    was = record.allowed or record.reason in _PASSED
    decision, at = _verdict(record, draft)
    present = was if rules is None else _verdict(record, rules)[0].allowed
    return Replayed(
        record.host, record.port, max(1, count), was, present, decision.allowed, decision.rule, decision.reason, at
    )


_PASSED = ("unreachable", "unresolvable", "timeout", "too_many", "revoked")
"""Outcomes in which the rules let the connection through and something else ended it."""
_NOT_OUTSIDE = ("not_global", "own_host")
_RULED = ("not_allowed", "denied", "no_policy", "not_global", "own_host")
"""Refusals that other rules could turn into an allow."""


def _verdict(record: EgressRecord, rules: _RuleIndex) -> tuple[EgressVerdict, str]:
    """What rules decide, and the rule that allows the address if one is needed."""
    if not record.allowed and record.reason not in (*_PASSED, *_RULED):
        return EgressVerdict(False, record.reason), ""
    decision = verdict(rules.about(record.host), record.host, record.port)
    address = parse_address(record.address) if decision.allowed else None
    if address is None:  # no address was reached
        return (decision if record.reason not in _NOT_OUTSIDE else EgressVerdict(False, record.reason)), ""
    at = address_verdict(rules.networks, address, record.port, own=_is_own(record, address))
    return (decision, at.rule) if at.allowed else (at, "")


def _is_own(record: EgressRecord, address: Address) -> bool:
    """Whether the gateway said that the address was its own machine's, which a network in a rule does not open."""
    return record.reason == "own_host" or (record.reason == "not_global" and is_global(address))
