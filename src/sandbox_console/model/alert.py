"""Alerts: what a rule found, the messages about it, and what silences them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, to_builtins

Severity = Literal["info", "warning", "critical"]
Status = Literal["firing", "resolved", "test"]
"""What a message says of its alerts. ``test`` is one that ``alerts test`` sends."""


class AlertState(StrEnum):
    """PENDING: the condition holds, but not for long enough yet."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Alert(Struct, frozen=True):
    """A condition of a rule that holds, or held, for one subject. Times are seconds since the epoch.

    ``id`` stays the same from the first moment to the end. ``subject`` is a sandbox's ref, or ``backend/host`` for a
    rule about backends; ``name`` is what people call it. ``name`` and ``text`` are clean: they may come from a guest.
    ``count`` is how often it happened, ``silenced`` whether somebody turned its messages off.
    """

    id: str
    rule: str
    severity: Severity
    subject: str
    name: str
    state: AlertState
    since: float
    text: str
    count: int = 1
    fired_at: float | None = None
    resolved_at: float | None = None
    silenced: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data: dict[str, Any] = to_builtins(self)
        return data


class AlertMessage(Struct, frozen=True):
    """What is sent: the alerts of one rule that began, or ended, at the same time.

    ``id`` is the same however often the message is sent, so that a receiver can drop what it already has.
    ``expires_at`` is when alerts that still fire may be taken as over if nothing more is heard of them.
    """

    id: str
    rule: str
    severity: Severity
    status: Status
    at: float
    console: str
    alerts: tuple[Alert, ...]
    expires_at: float = 0.0

    @property
    def headline(self) -> str:
        """One line for people."""
        first = self.alerts[0]
        word = {"firing": self.severity, "resolved": "resolved", "test": "test"}[self.status]
        more = f" and {len(self.alerts) - 1} more" if len(self.alerts) > 1 else ""
        return f"[{word}] {self.rule}: {first.name}{more}: {first.text}"


class Delivery(Struct, frozen=True):
    """A message on its way over one channel. ``next_at`` is when it is tried again."""

    message: AlertMessage
    channel: str
    attempts: int = 0
    next_at: float = 0.0
    error: str = ""


class Silence(Struct, frozen=True):
    """Turns off the messages of rules and sandboxes that match both shell patterns, until a time."""

    id: int
    rule: str
    sandbox: str
    until: float
    by: str
    reason: str
    made_at: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data: dict[str, Any] = to_builtins(self)
        return data
