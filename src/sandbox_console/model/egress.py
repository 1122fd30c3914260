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

    A matching deny wins over every allow; what no rule matches is denied. An allow without a port means 80 and
    443, a deny without one means every port.
    """

    pattern: str
    effect: Effect = Effect.ALLOW
    until: float | None = None
    source: str = "spec"  # spec, or who added it later: live


@dataclass(frozen=True, slots=True)
class EgressRecord:
    """One decision of a gateway, and once more when an allowed connection has ended.

    Times are seconds since the epoch, ``duration_s`` and the byte counts are known at the end only.
    ``reason`` is one of REASONS, empty where it was allowed and, at the end, where it ended by itself;
    ``rule`` is the pattern that decided, empty where none matched. A connection that was allowed by its name and then
    turned out wrong (sni_mismatch, no_sni, raw) has a second record, not allowed, with the address it was pinned to.
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

    @property
    def outcome(self) -> Outcome:
        """The outcome: a rule or the form of a request refuses, a name does not resolve, a network fails."""
        return outcome_of(self.reason, allowed=self.allowed)


class Outcome(StrEnum):
    """The outcome of a requested connection; ``asked`` if there was none and somebody requests permission."""

    ALLOWED = "allowed"
    DENIED = "denied"
    ASKED = "asked"
    UNRESOLVED = "unresolved"
    FAILED = "failed"


def outcome_of(reason: str, *, allowed: bool) -> Outcome:
    """The outcome of a decision with a reason of REASONS."""
    if reason == ASKED:
        return Outcome.ASKED
    if reason == "unresolvable":
        return Outcome.UNRESOLVED
    if reason in ("unreachable", "timeout", "too_many"):
        return Outcome.FAILED
    return Outcome.ALLOWED if allowed and not reason else Outcome.DENIED


@dataclass(frozen=True, slots=True)
class EgressState:
    """The egress of one sandbox as it is enforced now. ``gateway`` is empty while it answers, else the reason."""

    rules: tuple[EgressRule, ...] = ()
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class EgressVerdict:
    """What would decide about a host and port, without connecting.

    ``hint`` is a sentence where a rule nearly matched: another port, the apex of a wildcard.
    """

    allowed: bool
    reason: str = ""
    rule: str = ""
    hint: str = ""


ASKED = "asked"
"""The reason of an assistant's request, which no gateway's record has. ``rule`` is then the requester."""

REASONS = {
    ASKED: "it is asked for, and a person answers",
    "not_allowed": "no rule allows it",
    "secret_violation": "a secret's placeholder was sent where the secret may not go",
    "denied": "a rule denies it",
    "bad_host": "it is not a host name",
    "no_policy": "the gateway cannot read its rules, so nothing passes",
    "not_global": "its address is not a public one, and no rule names that address",
    "own_host": "its address is this machine's own or a cloud's metadata, and no rule names exactly that address",
    "unresolvable": "its name has no address",
    "unreachable": "it cannot be reached",
    "sni_mismatch": "the TLS handshake names another host",
    "no_sni": "the TLS handshake names no host",
    "raw": "it does not speak TLS, which a CONNECT tunnel needs",
    "host_mismatch": "the Host header names another host",
    "bad_request": "the request is malformed, or two readers could understand it differently",
    "too_many": "too many connections are open",
    "timeout": "it took too long",
    "revoked": "the rule that allowed it was removed or has expired",
}
"""What each reason of a record or verdict means, as a clause."""
