"""``egress test`` and ``egress replay``: show what the current rules, or other rules, would decide about a host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import duration
from sandbox_console.cli.spec_options import read_file, read_text
from sandbox_console.errors import InvalidSpec, UsageError
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.model import hosts
from sandbox_console.model.egress import REASONS, EgressRule
from sandbox_console.model.egress_rules import split_target
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console, Replayed
from sandbox_console.service.reads.egress_draft import read_draft


def time_left(rule: EgressRule, now: float) -> str:
    """How long a rule remains valid, as text; ``now`` is in Unix seconds."""
    return "for good" if rule.until is None else duration(rule.until - now)


async def test(context: Context, console: Console, sandbox: Sandbox) -> int:
    """Print whether a host could be reached now, and by which rule. Returns exit code 1 if it could not."""
    host, port = split_target(context.args.host)
    verdict, rule = await console.egress.explain(sandbox.ref, host, port)
    data = {"allowed": verdict.allowed, "reason": verdict.reason, "rule": verdict.rule, "hint": verdict.hint}
    if context.json:
        source = {"until": rule.until if rule else None, "source": rule.source if rule else ""}
        context.record({"name": sandbox.name, "ref": str(sandbox.ref), "host": host, "port": port} | data | source)
        return 0 if verdict.allowed else 1
    by = ""
    if rule is not None:
        by = f" by the rule {rule.pattern} ({rule.source}, {time_left(rule, context.now())})"
    reason = "" if verdict.allowed or rule is not None else f": {REASONS.get(verdict.reason, verdict.reason)}"
    context.text(f"{host}:{port} is {'allowed' if verdict.allowed else 'denied'}{by}{reason}")
    if verdict.hint:
        context.say(f"note: {verdict.hint}")
    return 0 if verdict.allowed else 1


async def replay(context: Context, console: Console, sandbox: Sandbox) -> int:
    """Print what a draft would newly deny or allow. Returns exit code 1 if it would deny what was allowed."""
    guest_folders = await console.ground() if context.args.policy or context.args.draft else NOBODYS
    rules = [*_draft(context, guest_folders), *await _draft_lines(context, console, sandbox, guest_folders)]
    if not rules:
        raise UsageError("a draft is needed", hint="--egress PATTERN, --draft FILE, or --policy FILE")
    replayed = await console.egress.replay(sandbox.ref, rules)
    shown = [one for one in replayed if one.change or context.args.all]
    shown.sort(key=lambda one: (one.change != "denied", one.change != "allowed", -one.count, one.host))
    if context.json:
        for one in shown:
            context.record(_replayed_data(one))
    else:
        head = ("HOST", "PORT", "COUNT", "WAS", "WOULD BE", "RULE")
        context.table(head, (_replayed_cells(one) for one in shown))
        denied, allowed = (sum(one.change == word for one in replayed) for word in ("denied", "allowed"))
        context.say(f"{len(replayed)} hosts and ports on record: {denied} newly denied, {allowed} newly allowed")
    return 1 if any(one.change == "denied" for one in replayed) else 0


def _draft(context: Context, guest_folders: GuestFolders) -> Sequence[EgressRule]:
    patterns = list(context.args.egress)
    if context.args.policy:
        patterns += _patterns(read_file(context.args.policy, guest_folders), context.args.policy)
    for pattern in patterns:
        try:
            hosts.parse(pattern, allow_ip=True)
        except ValueError as error:
            raise InvalidSpec({"egress": str(error)}) from None
    return [EgressRule(pattern) for pattern in patterns]


async def _draft_lines(
    context: Context, console: Console, sandbox: Sandbox, guest_folders: GuestFolders
) -> Sequence[EgressRule]:
    """The rules of ``--draft``. A line may name a current rule with its time. Raises InvalidSpec by line."""
    if not context.args.draft:
        return []
    text = await asyncio.to_thread(read_text, context.args.draft, guest_folders)
    known = (await console.egress.state(sandbox.ref)).rules
    lines = read_draft(text, context.now(), known=known, allow_ip=True)
    if wrong := {f"line {at}": line.problem for at, line in enumerate(lines, 1) if line.problem}:
        raise InvalidSpec(wrong)
    return [line.rule for line in lines if line.rule is not None]


def _patterns(values: Mapping[str, Any], name: str) -> Iterable[str]:
    """The patterns in ``egress`` of a spec, or of the ``[policy]`` table of a configuration."""
    table = values["policy"] if isinstance(values.get("policy"), Mapping) else values
    found = table.get("egress")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise UsageError(f"{name} has no egress = [...] in it, on top or under [policy]")
    return found


def _replayed_cells(one: Replayed) -> tuple[str, ...]:
    would = f"{_word(allowed=one.would)}{' (new)' if one.change else ''}"
    return (
        one.host,
        str(one.port),
        str(one.count),
        _word(allowed=one.was),
        would,
        one.rule or REASONS.get(one.reason, "-"),
    )


def _word(*, allowed: bool) -> str:
    return "allowed" if allowed else "denied"


def _replayed_data(one: Replayed) -> dict[str, Any]:
    return {
        "host": one.host,
        "port": one.port,
        "count": one.count,
        "was": _word(allowed=one.was),
        "would": _word(allowed=one.would),
        "change": one.change,
        "rule": one.rule,
        "reason": one.reason,
    }
