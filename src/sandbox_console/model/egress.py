"""Egress as data: a sandbox's rules, and the record of one decision.

This module uses the standard library only, because the gateway runs it inside containers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a rule does with a matching connection."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One rule: a pattern of ``model.hosts``, and when it expires (seconds since the epoch; None means never).

    A matching deny rule wins over every allow rule; a connection that matches no rule is denied. An allow rule without
    a port covers ports 80 and 443; a deny rule without one covers every port.
    """

    pattern: str
    effect: Effect = Effect.ALLOW
    until: float | None = None
    source: str = "spec"  # "spec", or "live" if it was added later


@dataclass(frozen=True, slots=True)
class EgressRecord:
    """One decision of a gateway. An allowed connection gets a second record when it has ended.

    Times are seconds since the epoch; ``duration_s`` and the byte counts are known only at the end. ``reason`` is one
    of REASONS. It is empty if the connection was allowed and, at the end, if it closed by itself. ``rule`` is the
    pattern that decided, empty if none matched. A connection that was allowed by its name and then did something else
    (sni_mismatch, no_sni, raw) has a second record that is not allowed, with the address it was pinned to.
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
    sent_bytes: int = 0  # sent by the sandbox
    received_bytes: int = 0
    duration_s: float | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome as a word: allowed, refused, or why the connection failed."""
        return outcome_of(self.reason, allowed=self.allowed)


class Outcome(StrEnum):
    """The outcome of a connection; ``asked`` if none was made and somebody requests permission for it."""

    ALLOWED = "allowed"
    DENIED = "denied"
    ASKED = "asked"
    UNRESOLVED = "unresolved"
    FAILED = "failed"


OUTCOMES = {one: str(one) for one in Outcome} | {Outcome.UNRESOLVED: "not resolved", Outcome.ASKED: "asked for"}
"""What each outcome is called in text."""


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
    """The egress of one sandbox as enforced. ``gateway`` is empty while the gateway answers, else why it does not."""

    rules: tuple[EgressRule, ...] = ()
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class EgressVerdict:
    """What would be decided about a host and port, without connecting.

    ``hint`` is a sentence if a rule nearly matched: for example on another port, or the apex of a wildcard.
    """

    allowed: bool
    reason: str = ""
    rule: str = ""
    hint: str = ""


ASKED = "asked"
"""The reason of a request by an assistant. No record of a gateway has it. ``rule`` is then the requester."""

REASONS = {
    ASKED: "an assistant asked for it, and a person has to answer",
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
