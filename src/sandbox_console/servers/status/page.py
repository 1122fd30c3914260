"""A fleet as JSON, and as a page of plain tables, which a screen reader can read and a phone can show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from sandbox_console.model.sandbox import BackendHealth, Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service.fleet_status import FleetStatus, has_trouble, troubles_first

REFRESH_S = 30
_CAP = 300
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:1rem;max-width:75rem}table{border-collapse:collapse;width:100%;"
    "margin:0 0 2rem}caption{text-align:left;font-weight:bold;padding:.25rem 0}th,td{text-align:left;padding:.25rem "
    ".75rem .25rem 0;border-bottom:1px solid #8886;vertical-align:top;overflow-wrap:anywhere;min-width:4rem}"
    "th[scope=row]{min-width:11rem}td:nth-child(2){min-width:6rem}.wide{overflow-x:auto}"
    ".trouble td:nth-child(2){font-weight:bold}:root{color-scheme:light dark}"
)


def as_json(status: FleetStatus, sessions: int | None) -> dict[str, Any]:
    """Plain data. Texts of a sandbox are as its backend gives them."""
    return {
        "at": status.at,
        "backends": [
            {"backend": one.backend, "host": one.host, "state": str(one.state), "reason": one.reason}
            for one in status.backends
        ],
        "sandboxes": [_sandbox(status, one) for one in troubles_first(status.sandboxes)],
        "alerts": [
            {"rule": one.rule, "severity": str(one.severity), "name": one.name, "text": one.text, "since": one.since}
            for one in status.alerts
        ],
        "actions": [
            {"action": action, "outcome": outcome, "count": count}
            for (action, outcome), count in sorted(status.actions.items())
        ],
        "audit": {"rows": status.audit_rows, "problem": status.audit_problem or None, "unshipped": status.unshipped},
        "sessions": sessions,
    }


def _sandbox(status: FleetStatus, one: Sandbox) -> dict[str, Any]:
    return {
        "name": one.name, "ref": str(one.ref), "state": str(one.status), "image": one.image,
        "exit": one.exit.code if one.exit else None, "trouble": has_trouble(one), "note": _note(one),
        "denied": status.denied.get(one.ref, 0), "quarantine": one.quarantine or None,
    }  # fmt: skip


def page(status: FleetStatus, sessions: int | None) -> str:
    """The page. It asks for itself again after REFRESH_S seconds, and needs no script."""
    at = datetime.fromtimestamp(status.at, UTC)
    troubles = sum(map(has_trouble, status.sandboxes))
    title = f"{_count(troubles, 'fault')} · {_count(len(status.sandboxes), 'sandbox', 'sandboxes')}"
    shown = "" if sessions is None else f" {_count(sessions, 'browser session')}."
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}"><title>{title} · sandbox-console</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>As of {at:%Y-%m-%d %H:%M:%S} UTC; loads again every {REFRESH_S} seconds.{shown}</p>"
        f"{_audit(status)}{_alerts(status)}{_sandboxes(status)}{_backends(status.backends)}</body></html>\n"
    )


def _audit(status: FleetStatus) -> str:
    if status.audit_problem:
        return f'<p role="alert">The audit log cannot be used: {_text(status.audit_problem)}</p>'
    late = f", {status.unshipped} not yet at its server" if status.unshipped else ""
    return f"<p>The audit log has {_count(status.audit_rows, 'row')}{late}.</p>"


def _alerts(status: FleetStatus) -> str:
    rows = [((one.severity, one.rule, one.name, one.text), False) for one in status.alerts]
    return _table("Alerts that fire", ("Severity", "Rule", "Sandbox", "Text"), rows) if rows else ""


def _sandboxes(status: FleetStatus) -> str:
    head = ("Name", "State", "Backend", "Image", "Exit", "Denied", "Note")
    rows = [
        (
            (
                one.name, str(one.status), f"{one.ref.backend}/{one.ref.host}", one.image,
                "" if one.exit is None or one.exit.code is None else str(one.exit.code),
                str(status.denied.get(one.ref, "")), _note(one),
            ),
            has_trouble(one),
        )
        for one in troubles_first(status.sandboxes)
    ]  # fmt: skip
    return _table("Sandboxes, those with a fault first", head, rows) if rows else "<p>There are no sandboxes.</p>"


def _backends(backends: Iterable[BackendHealth]) -> str:
    rows = [((f"{one.backend}/{one.host}", str(one.state), one.reason), not one.ok) for one in backends]
    return _table("Backends", ("Backend", "State", "Reason"), rows)


def _note(one: Sandbox) -> str:
    held = f"in quarantine: {one.quarantine}" if one.quarantine else ""
    memory = "out of memory" if one.exit is not None and one.exit.oom else ""
    return "; ".join(filter(None, (held, memory, one.detail)))


def _table(caption: str, head: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]]) -> str:
    heads = "".join(f'<th scope="col">{_text(one)}</th>' for one in head)
    lines = "".join(_row(cells, trouble=trouble) for cells, trouble in rows)
    return (
        f'<div class="wide"><table><caption>{caption}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _row(cells: Sequence[str], *, trouble: bool) -> str:
    first, *others = map(_text, cells)
    mark = ' class="trouble"' if trouble else ""
    return f'<tr{mark}><th scope="row">{first}</th>' + "".join(f"<td>{one}</td>" for one in others) + "</tr>"


def _text(text: str) -> str:
    return escape(clean(text, cap=_CAP))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
