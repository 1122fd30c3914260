"""What sandboxes reached and were refused, by host: counted, with when first and last. Pure and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandbox_console.egress.decide import verdict
from sandbox_console.model.egress import EgressRecord, EgressRule
from sandbox_console.model.sandbox import SandboxRef

HOSTS_MOST = 2000
"""A guest may ask for any number of names: past this, the host not seen for longest is forgotten, and counted."""
_PORTS_MOST = 16


@dataclass(slots=True)
class HostSeen:
    """One host. Times are seconds since the epoch; ``reason`` and ``rule`` are those of the last decision."""

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

    @property
    def last_denied(self) -> bool:
        """Whether the last word was a denial."""
        return bool(self.reason)


class Feed:
    """Records in, hosts out."""

    def __init__(self, most: int = HOSTS_MOST) -> None:
        self._most = most
        self._hosts: dict[str, HostSeen] = {}
        self.forgotten = 0

    def add(self, ref: SandboxRef, name: str, record: EgressRecord) -> None:
        """Count a record. The end of an allowed connection adds its bytes and is no connection of its own."""
        seen = self._hosts.pop(record.host, None) or HostSeen(record.host, first=record.at)
        self._hosts[record.host] = seen  # the dictionary's order is that of the last word
        seen.first, seen.last = min(seen.first, record.at), max(seen.last, record.at)
        seen.refs[ref] = name
        seen.sent_bytes += record.sent_bytes
        seen.received_bytes += record.received_bytes
        if record.ended and not record.reason:
            return
        seen.port = record.port
        if len(seen.ports) < _PORTS_MOST:
            seen.ports.add(record.port)
        seen.rule = record.rule
        if record.allowed:
            seen.allowed += not record.ended
            seen.reason = record.reason
        else:
            seen.denied += 1
            seen.reason = record.reason or "not_allowed"
        if len(self._hosts) > self._most:
            del self._hosts[next(iter(self._hosts))]
            self.forgotten += 1

    def forget(self, ref: SandboxRef) -> None:
        """Leave out a sandbox that is gone, with the hosts that only it asked for."""
        for seen in list(self._hosts.values()):
            if seen.refs.pop(ref, None) is not None and not seen.refs:
                del self._hosts[seen.host]

    def hosts(self, *, denied_only: bool = False) -> Sequence[HostSeen]:
        """Hosts, the one that was heard of last first."""
        return [seen for seen in reversed(self._hosts.values()) if seen.denied or not denied_only]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A host and port of recorded traffic under a draft. ``change`` is denied, allowed, or empty where it stays."""

    host: str
    port: int
    count: int
    was: bool
    would: bool
    rule: str
    reason: str

    @property
    def change(self) -> str:
        """What would newly happen."""
        return "" if self.was is self.would else ("allowed" if self.would else "denied")


def replay(records: Iterable[EgressRecord], rules: Sequence[EgressRule]) -> Sequence[Replayed]:
    """What a draft says to recorded traffic: by host and port. What was allowed once counts as allowed.

    What was refused for its form (a wrong server name, a private address) would be so again, whatever the draft.
    """
    seen: dict[tuple[str, int], tuple[int, EgressRecord]] = {}
    for record in records:
        if record.ended and not record.reason:
            continue
        key = (record.host, record.port)
        count, before = seen.get(key, (0, record))
        seen[key] = (count + (not record.ended), before if before.allowed else record)
    return [_replayed(record, count, rules) for count, record in seen.values()]


def _replayed(record: EgressRecord, count: int, rules: Sequence[EgressRule]) -> Replayed:
    said = verdict(rules, record.host, record.port)
    was = record.allowed or record.reason in ("unreachable", "unresolvable", "timeout", "too_many", "revoked")
    form = not was and record.reason not in ("not_allowed", "denied", "no_policy")
    would, reason = (False, record.reason) if form else (said.allowed, said.reason)
    return Replayed(record.host, record.port, max(1, count), was, would, said.rule, reason)
