"""Egress as data: a sandbox's rules and the record of one decision. Standard library only: the gateway ships it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a rule does to what it matches."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One rule: a pattern of ``model.hosts``, and until when it holds (seconds since the epoch; None: for good).

    A matching deny wins over every allow; what no rule matches is denied.
    """

    pattern: str
    effect: Effect = Effect.ALLOW
    until: float | None = None
    source: str = "spec"  # spec, or who added it later: live


@dataclass(frozen=True, slots=True)
class EgressRecord:
    """One decision of a gateway, and once more when an allowed connection has ended.

    Times are seconds since the epoch, ``duration_s`` and the byte counts are known at the end only.
    ``reason`` is a stable word (not_allowed, denied, not_global, sni_mismatch, host_mismatch, raw, unresolvable, ...);
    ``rule`` is the pattern that decided, empty where none matched.
    """

    at: float
    sandbox: str
    host: str
    port: int
    allowed: bool
    reason: str = ""
    rule: str = ""
    address: str = ""
    method: str = ""
    ended: bool = False
    sent_bytes: int = 0  # by the sandbox
    received_bytes: int = 0
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class EgressState:
    """The egress of one sandbox as it is enforced now. ``gateway`` is empty while it answers, else why it does not."""

    rules: tuple[EgressRule, ...] = ()
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class EgressVerdict:
    """What would decide about a host and port, without connecting."""

    allowed: bool
    reason: str = ""
    rule: str = ""
