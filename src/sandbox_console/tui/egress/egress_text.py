"""Egress as rows and text. Pure; all its text is clean."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sandbox_console.model import hosts
from sandbox_console.model.action import Action, ChangeEgress, DenyEgress, EgressAction
from sandbox_console.model.egress import REASONS, Effect, EgressRule, Outcome
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import ActionResult, HostSeen
from sandbox_console.tui.text.formatting import span
from sandbox_console.tui.widgets.table.table import Row
from sandbox_console.tui.widgets.table.table_layout import Column

RULES_SHOWN = 6
CHECKED_SHOWN = 6
_DAY_S = 86400.0
OUTCOMES = {
    Outcome.ALLOWED: ("● allowed", "ok"),
    Outcome.DENIED: ("⊘ denied", "error"),
    Outcome.ASKED: ("+ asked for", "warn"),
    Outcome.UNRESOLVED: ("? not resolved", "warn"),
    Outcome.FAILED: ("✕ failed", "warn"),
}
"""The outcomes of a connection. Each of the three failures has its own sign, so that none depends on colour alone."""
_LAST = (
    Column("host", "HOST", 16, 60, priority=0, flex=True),
    Column("last_said", "LAST", 9, 14, priority=0),
    Column("denied", "DENIED", 6, 8, align="right", priority=0),
    Column("allowed", "ALLOWED", 7, 8, align="right", priority=2),
)
_TIMES = (
    Column("ports", "PORTS", 5, 16, priority=3),
    Column("first", "FIRST", 8, 14, priority=4),
    Column("last", "AT", 8, 14, priority=1),
    Column("why", "WHY", 12, 60, priority=2),
)
COLUMNS = (*_LAST, *_TIMES)
FLEET_COLUMNS = (*_LAST, Column("sandboxes", "SANDBOXES", 9, 30, priority=1), *_TIMES)


def with_hosts(edits: str) -> str:
    """Return what to do if a sandbox was created without egress. ``edits`` is the key of its form."""
    return f"{f'{edits} edits its spec' if edits else 'Edit its spec'}; adding hosts to egress recreates the sandbox."


def host_row(known_host: HostSeen, now: float, *, fleet: bool = False) -> Row:
    """Return the row of a host. In the fleet's feed, it has the names of the sandboxes that requested the host."""
    outcome, style = OUTCOMES[known_host.outcome]
    reason = (
        REASONS.get(known_host.reason, clean(known_host.reason, cap=60))
        if known_host.reason
        else f"by {clean(known_host.rule, cap=80)}"
    )
    if known_host.asker:
        reason = f"asked for by {clean(known_host.asker, cap=60)}"
    ports = ",".join(map(str, sorted(known_host.ports)))
    host = clean(known_host.host, cap=253) or "(no name)"
    names = [clean(name, cap=40) for name in sorted(set(known_host.refs.values()))]
    cells = [host, outcome, str(known_host.denied), str(known_host.allowed)]
    sort: list[Any] = [host, outcome, known_host.denied, known_host.allowed]
    styles = ["", style, "" if known_host.denied else "dim", "dim"]
    if fleet:
        cells.append(" ".join(names))
        sort.append(names)
        styles.append("accent")
    cells += [ports, at(known_host.first, now), at(known_host.last, now), reason]
    sort += [min(known_host.ports, default=0), known_host.first, known_host.last, reason]
    return Row(
        known_host.host, tuple(cells), (*styles, "dim", "dim", "dim", "dim" if style == "ok" else style), tuple(sort)
    )


def at(when: float, now: float) -> str:
    """Return a time of day, with the date if it is another day."""
    local = datetime.fromtimestamp(when).astimezone()
    return f"{local:%H:%M:%S}" if abs(now - when) < _DAY_S else f"{local:%m-%d %H:%M:%S}"


def rules_lines(rules: Sequence[EgressRule], now: float, shows_all: str = "") -> list[tuple[str, str]]:
    """Return the rules in force, live ones first, each with its time left. Those that do not fit are counted.

    ``shows_all`` is the hint for what shows all of them.
    """
    if not rules:
        return [("No rule allows anything.", "$text-warning")]
    ordered = sorted(rules, key=lambda rule: (rule.source == "spec", rule.effect is Effect.ALLOW))
    parts: list[tuple[str, str]] = []
    for rule in ordered[:RULES_SHOWN]:
        parts += [*_rule_line(rule, now), ("\n", "")]
    if len(ordered) > RULES_SHOWN:
        how = f": {shows_all}" if shows_all else ""
        parts += [(f"and {len(ordered) - RULES_SHOWN} more{how}", "$dim"), ("\n", "")]
    return parts[:-1]


def _rule_line(rule: EgressRule, now: float) -> list[tuple[str, str]]:
    glyph, style = ("●", "$text-success") if rule.effect is Effect.ALLOW else ("⊘", "$text-error")
    left = "" if rule.until is None else f"  {span(rule.until - now)} left"
    return [
        (f"{glyph} {rule.effect:<5} ", style),
        (clean(rule.pattern, cap=120), "bold"),
        (left, "$text-warning"),
        ("" if rule.source == "spec" else f"  {clean(rule.source, cap=20)}", "$dim"),
    ]


def diff_lines(
    before: Sequence[EgressRule], after: Sequence[EgressRule], now: float, most: int | None = None
) -> list[tuple[str, str]]:
    """Return what a change removes and adds. Lines beyond ``most`` are counted."""
    gone, new = [rule for rule in before if rule not in after], [rule for rule in after if rule not in before]
    parts = [("- ", rule, "$text-error") for rule in gone] + [("+ ", rule, "$text-success") for rule in new]
    if not parts:
        return [("nothing differs", "$dim")]
    found: list[tuple[str, str]] = []
    for sign, rule, style in parts[:most]:
        how_long = "" if rule.until is None else f" for {span(_whole(rule.until - now))}"
        found += [(f"{sign}{rule.effect} {clean(rule.pattern, cap=120)}{how_long}", style), ("\n", "")]
    if most is not None and len(parts) > most:
        found += [(f"and {len(parts) - most} more", "$dim"), ("", "")]
    return found[:-1]


def note_lines(notes: Sequence[str]) -> list[tuple[str, str]]:
    """Return a line for each secret that a change lets reach more hosts than it should, shown below the change."""
    return [part for note in notes for part in (("\n", ""), (f"! {clean(note, cap=400)}", "$text-warning"))]


def commands(action: EgressAction, now: float) -> list[str]:
    """Return a change of rules as commands to type, one for each verb and time."""
    if isinstance(action, DenyEgress):
        return [_command("deny", action.ref, action.patterns, action.until, now)]
    found = [_command("remove", action.ref, action.remove, None, now)] if action.remove else []
    groups: dict[tuple[Effect, float | None], list[str]] = {}
    for rule in action.add:
        groups.setdefault((rule.effect, rule.until), []).append(rule.pattern)
    return found + [_command(str(effect), action.ref, some, until, now) for (effect, until), some in groups.items()]


def _command(verb: str, ref: SandboxRef, patterns: Sequence[str], until: float | None, now: float) -> str:
    how_long = [] if until is None else ["--for", f"{max(1, round(until - now))}s"]
    return shlex.join(["sandbox-console", "egress", verb, str(ref), *patterns, *how_long])


def _whole(seconds: float) -> float:
    """Round to the minute, so that an hour that was set a moment ago is shown as one."""
    return round(seconds / 60) * 60 if seconds > 5 * 60 else seconds


def ended(action: Action, name: str, result: ActionResult) -> tuple[str, bool] | None:
    """Return the message for a finished egress change and whether it is as requested, or None for other actions."""
    if not isinstance(action, ChangeEgress | DenyEgress):
        return None
    if unchecked := result.details.get("unchecked"):
        return (
            f"{name}: the rules are stored, but the gateway could not be checked: {clean(str(unchecked), cap=200)}",
            False,
        )
    checked = result.details.get("checked")
    found = sorted(checked if isinstance(checked, list) else [], key=lambda one: bool(one["ok"]))
    lines = [f"{name}: egress changed", *map(_checked_line, found[:CHECKED_SHOWN])]
    if len(found) > CHECKED_SHOWN:
        lines.append(f"and {len(found) - CHECKED_SHOWN} more, in the audit log")
    return "\n".join(lines), all(one["ok"] for one in found)


def _checked_line(one: Mapping[str, Any]) -> str:
    is_now = "allowed" if one["allowed"] else "denied"
    where = clean(f"{one['host']}:{one['port']}", cap=260)
    if one["ok"]:
        return f"checked: {where} is {is_now}"
    by = f" by the rule {clean(one['rule'], cap=120)}" if one["rule"] else ""
    return f"NOT in effect: {where} is {is_now}{by}"


def patterns_of(host: str, port: int, *, allow: bool) -> list[str]:
    """Return patterns for a host in a rule, the narrowest useful one first, or none if it is not a host."""
    shown = f"[{host}]" if ":" in host else host
    exact = shown if port in hosts.DEFAULT_PORTS or not allow else f"{shown}:{port}"
    found = [exact]
    parent = host.partition(".")[2]
    if hosts.parse_address(host) is None and "." in parent:
        found.append(f"*.{parent}" + (f":{port}" if exact != shown else ""))
    good = []
    for pattern in found:
        try:
            hosts.parse(pattern, allow_ip=True)
        except ValueError:
            continue
        good.append(pattern)
    return good
