"""The life of an alert: pending, firing, resolved; and when a message is sent about it. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct, structs

from sandbox_console.model.alert import Alert, AlertMessage, AlertState, Severity, Silence, Status
from sandbox_console.model.text import clean
from sandbox_console.service.alert_options import AlertRule
from sandbox_console.service.alerts.store import LastMessage

TEXT_MOST = 300
"""Characters of an alert's text."""
NAME_MOST = 100
TOGETHER = 100
"""The most alerts in one message."""
_EXPIRES_S = 600.0


def cleaned(text: str) -> str:
    """The text of an alert, harmless to show and bounded. It may come from a guest."""
    return clean(text.replace("\t", " "), cap=TEXT_MOST)


class Occurrence(Struct, frozen=True):
    """What holds for a subject. ``name`` and ``text`` may come from a guest."""

    subject: str
    name: str
    text: str
    count: int = 1


def begun(name: str, rule: AlertRule, found: Occurrence, now: float) -> Alert:
    """A new alert, pending."""
    id_ = f"alert_{secrets.token_hex(12)}"
    return Alert(id_, name, rule.severity, found.subject, clean(found.name, cap=NAME_MOST), AlertState.PENDING, now,
                 cleaned(found.text))  # fmt: skip


def stepped(alert: Alert, rule: AlertRule, found: Occurrence | None, now: float, over: str = "") -> Alert | None:
    """The alert after a look; None if its condition ended before it fired. ``over`` says why it ended."""
    if found is None:
        if alert.state is not AlertState.FIRING:
            return None
        text = f"{alert.text}; {over}" if over else alert.text
        return structs.replace(alert, state=AlertState.RESOLVED, resolved_at=now, text=cleaned(text))
    last_message = structs.replace(alert, text=cleaned(found.text), count=found.count)
    if alert.state is AlertState.PENDING:
        if now - alert.since < rule.lasting_s:
            return alert
        return structs.replace(last_message, state=AlertState.FIRING, fired_at=now)
    return last_message if found.count != alert.count else alert


def is_silenced(alert: Alert, silences: Iterable[Silence], now: float) -> bool:
    """Whether a silence covers an alert."""
    return any(
        silence.until > now
        and fnmatchcase(alert.rule, silence.rule)
        and (fnmatchcase(alert.name, silence.sandbox) or fnmatchcase(alert.subject, silence.sandbox))
        for silence in silences
    )


def message_due(
    alert: Alert, rule: AlertRule, last_message: LastMessage | None, now: float
) -> tuple[Status | None, LastMessage | None]:
    """Whether a message is due about an alert, and what to remember of it; None for what does not change."""
    mine = last_message is not None and last_message.alert == alert.id
    if alert.state is AlertState.RESOLVED:
        if mine:
            return ("resolved" if rule.resolved else None), None
        return None, LastMessage(
            last_message.alert, last_message.at, last_message.kept + 1
        ) if last_message is not None and not alert.silenced else None
    if alert.silenced:
        return None, None
    wait = rule.repeat_s if mine else rule.throttle_s
    if last_message is not None and (now - last_message.at < wait or (mine and not rule.repeat_s)):
        return None, None
    return "firing", LastMessage(alert.id, now)


def messages(
    name: str, rule: AlertRule, alerts: Sequence[Alert], status: Status, console: str, now: float
) -> Iterable[AlertMessage]:
    """Messages about alerts of one rule."""
    expires = now + max(_EXPIRES_S, 2 * rule.repeat_s) if rule.repeat_s else now + 30 * 86400
    severity: Severity = rule.severity
    for at in range(0, len(alerts), TOGETHER):
        id_ = f"msg_{secrets.token_hex(16)}"
        yield AlertMessage(id_, name, severity, status, now, console, tuple(alerts[at : at + TOGETHER]), expires)
