"""Messages as the JSON that receivers expect. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sandbox_console.model.alert import Alert, AlertMessage
from sandbox_console.model.text import clean

_SLACK_LINES = 20
_SLACK_HEADER, _SLACK_TEXT = 150, 2900


def body(message: AlertMessage, shape: str) -> bytes:
    """A message in a shape: generic, slack or alertmanager."""
    payload = {"slack": slack, "alertmanager": alertmanager}.get(shape, generic)(message)
    return json.dumps(payload, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()


def generic(message: AlertMessage) -> dict[str, Any]:
    """The console's own shape, which commands get, too. Times are ISO 8601, in UTC."""
    return {
        "id": message.id, "rule": message.rule, "severity": message.severity, "status": message.status,
        "at": _time(message.at), "console": message.console, "headline": message.headline,
        "alerts": [
            {"id": alert.id, "subject": alert.subject, "name": alert.name, "state": str(alert.state),
             "text": alert.text, "count": alert.count, "since": _time(alert.since),
             "fired_at": _time(alert.fired_at), "resolved_at": _time(alert.resolved_at)}
            for alert in message.alerts
        ],
    }  # fmt: skip


def slack(message: AlertMessage) -> dict[str, Any]:
    """An incoming webhook of Slack. Its blocks are plain text, in which nothing of a guest's is markup."""
    lines = [f"{alert.name}: {alert.text}" for alert in message.alerts[:_SLACK_LINES]]
    if len(message.alerts) > _SLACK_LINES:
        lines.append(f"and {len(message.alerts) - _SLACK_LINES} more")
    lines.append(f"{message.console}, {_time(message.at)}, {message.id}")
    head = f"[{message.severity if message.status == 'firing' else message.status}] {message.rule}"
    return {
        "text": _escaped(message.headline),
        "blocks": [
            {"type": "header", "text": _plain(head[:_SLACK_HEADER])},
            {"type": "section", "text": _plain("\n".join(lines)[:_SLACK_TEXT])},
        ],
    }


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _escaped(text: str) -> str:
    """Text without Slack's control characters: ``<!channel>`` would notify everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def alertmanager(message: AlertMessage) -> list[dict[str, Any]]:
    """What ``POST /api/v2/alerts`` of a Prometheus Alertmanager takes."""
    return [
        {
            "labels": {"alertname": message.rule, "severity": message.severity, "sandbox": alert.name,
                       "subject": alert.subject, "alert_id": alert.id, "console": message.console},
            "annotations": {"summary": alert.text, "message_id": message.id},
            "startsAt": _time(alert.fired_at or alert.since),
            "endsAt": _time(alert.resolved_at if alert.resolved_at is not None else message.expires_at),
        }
        for alert in message.alerts
    ]  # fmt: skip


def text(message: AlertMessage) -> str:
    """A message as lines of plain text, for a mail."""
    lines = [clean(message.headline), "", *(clean(_line(alert)) for alert in message.alerts)]
    return "\n".join([*lines, "", f"console: {message.console}", f"time: {_time(message.at)}", f"id: {message.id}", ""])


def _line(alert: Alert) -> str:
    until = f" until {_time(alert.resolved_at)}" if alert.resolved_at is not None else ""
    return f"{alert.name} ({alert.subject}), since {_time(alert.since)}{until}: {alert.text}"


def _time(at: float | None) -> str | None:
    return (
        None
        if at is None
        else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
