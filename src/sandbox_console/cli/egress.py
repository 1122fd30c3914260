"""``egress``: shows what sandboxes may reach and what they tried, and changes the rules while they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.create import follow
from sandbox_console.cli.egress_explain import replay, test, time_left
from sandbox_console.cli.formatting import duration, moment
from sandbox_console.cli.lookup import find, warn_of_the_silent
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model import quantities
from sandbox_console.model.action import ChangeEgress, DenyEgress, EgressAction
from sandbox_console.model.egress import OUTCOMES, REASONS, Effect, EgressRecord, EgressRule
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef
from sandbox_console.service import ActionResult, Console, Feed, HostSeen, has_gateway

_HOSTS_HEAD = ("HOST", "PORTS", "DENIED", "ALLOWED", "FIRST", "LAST", "SANDBOXES", "LAST DECISION")


async def egress(context: Context) -> int:
    """``show``, ``allow``, ``deny``, ``remove``, ``test``, ``replay``, ``ls`` or ``feed``."""
    verbs = {"show": _show, "allow": _change, "deny": _change, "remove": _change, "test": test, "replay": replay}
    async with context.open() as console:
        match context.args.what:
            case "ls":
                return await _ls(context, console)
            case "feed":
                return await _feed(context, console)
            case what:
                changing = what in ("allow", "deny", "remove")
                named = await find(context, console, context.args.name, changing=changing)
                found = await console.inspect(named.ref)
                return await verbs[what](context, console, found)


# Reading


async def _show(context: Context, console: Console, found: Sandbox) -> int:
    state = await console.egress.state(found.ref)
    if context.json:
        for rule in state.rules:
            context.record({"kind": "rule", "name": found.name} | _rule(rule))
    else:
        now = context.now()
        rows = ((rule.pattern, str(rule.effect), time_left(rule, now), rule.source) for rule in state.rules)
        context.table(("RULE", "EFFECT", "LEFT", "SOURCE"), rows)
    if not has_gateway(found):
        context.say("it was made without egress, so nothing can leave it")
    elif state.gateway:
        context.say(f"warning: the gateway does not answer: {state.gateway}")
    feed = Feed()
    since = context.now()
    async for record in console.egress.records(found.ref):
        feed.add(found.ref, found.name, record)
    _print_hosts(context, feed.hosts(), blank=True)
    if context.args.follow:
        async for record in console.egress.records(found.ref, since=since, follow=True):
            _print_record(context, record)
    return 0


async def _ls(context: Context, console: Console) -> int:
    since = _since(context)
    feed = Feed()
    warned = _tell_silent(context, console)
    async for sandbox, record in console.egress.feed(since=since, refused=_tell_unread(context), answered=warned):
        if context.backend[0] in ("", sandbox.ref.backend):
            feed.add(sandbox.ref, sandbox.name, record)
    found = feed.hosts(denied_only=not context.args.all)
    _print_hosts(context, found)
    if feed.forgotten:
        context.say(f"{feed.forgotten} hosts that were requested longest ago are left out")
    if not found and not context.failures:
        context.say("nothing was denied" if not context.args.all else "nothing is recorded")
    return context.code


async def _feed(context: Context, console: Console) -> int:
    since, refused = _since(context), _tell_unread(context)
    if context.args.follow:
        async for _, record in console.egress.feed(since=since or context.now(), follow=True, refused=refused):
            if _wanted(context, record):
                _print_record(context, record)
    records = console.egress.feed(since=since, refused=refused, answered=_tell_silent(context, console))
    found = [record async for _, record in records if _wanted(context, record)]
    for record in sorted(found, key=lambda record: record.at):
        _print_record(context, record)
    return context.code


def _tell_silent(context: Context, console: Console) -> Callable[[Sequence[BackendHealth]], None]:
    """A function that warns of hosts that did not answer, whose sandboxes' denials are missing from the list."""
    wanted = context.backend[0]
    return lambda healths: warn_of_the_silent(context, console, [one for one in healths if wanted in ("", one.backend)])


def _tell_unread(context: Context) -> Callable[[Sandbox, ConsoleError | None], None]:
    """A function that reports, once each, sandboxes whose records cannot be read, as that is not an empty list."""
    warned: set[SandboxRef] = set()

    def tell(sandbox: Sandbox, error: ConsoleError | None) -> None:
        if error is None:
            warned.discard(sandbox.ref)
        elif sandbox.ref not in warned:
            warned.add(sandbox.ref)
            context.fail(error, sandbox.name)

    return tell


def _wanted(context: Context, record: EgressRecord) -> bool:
    return context.args.all or not record.allowed


def _since(context: Context) -> float | None:
    if not context.args.since:
        return None
    try:
        return context.now() - quantities.parse_duration_s(context.args.since)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None


def _print_hosts(context: Context, found: Sequence[HostSeen], *, blank: bool = False) -> None:
    if context.json:
        for seen in found:
            context.record(host_data(seen))
        return
    if blank and found:
        context.streams.out.line("")
    if found or not blank:
        context.table(_HOSTS_HEAD, (_host_cells(seen) for seen in found))


def _host_cells(seen: HostSeen) -> tuple[str, ...]:
    ports = ",".join(map(str, sorted(seen.ports)))
    last = f"{OUTCOMES[seen.outcome]}: {REASONS.get(seen.reason, seen.reason)}"
    if seen.asker:
        last = f"asked for by {seen.asker}"
    elif not seen.reason:
        last = f"allowed by {seen.rule or '-'}"
    names = " ".join(sorted(set(seen.refs.values())))
    return seen.host, ports, str(seen.denied), str(seen.allowed), moment(seen.first), moment(seen.last), names, last


def host_data(seen: HostSeen) -> dict[str, Any]:
    """One host of a feed."""
    return {
        "kind": "host",
        "host": seen.host,
        "ports": sorted(seen.ports),
        "denied": seen.denied,
        "allowed": seen.allowed,
        "unresolved": seen.unresolved,
        "failed": seen.failed,
        "outcome": str(seen.outcome),
        "first": seen.first,
        "last": seen.last,
        "reason": seen.reason,
        "rule": seen.rule,
        "asker": seen.asker,
        "sent_bytes": seen.sent_bytes,
        "received_bytes": seen.received_bytes,
        "sandboxes": sorted(map(str, seen.refs)),
    }


def _print_record(context: Context, record: EgressRecord) -> None:
    if context.json:
        context.record({"kind": "record"} | json_output.egress_record(record))
        return
    why = REASONS.get(record.reason, record.reason)
    outcome = "ended" if record.ended and not record.reason else OUTCOMES[record.outcome]
    by = f"by {record.rule}" if record.rule else ""
    words = [moment(record.at), record.sandbox, outcome, f"{record.host}:{record.port}", why, by]
    context.text("  ".join(filter(None, words)))


def _rule(rule: EgressRule) -> dict[str, Any]:
    return {"pattern": rule.pattern, "effect": str(rule.effect), "until": rule.until, "source": rule.source}


# Changing


async def _change(context: Context, console: Console, found: Sandbox) -> int:
    began = time.time()
    action = _action(context, found, began)
    operation = console.perform(action, consent=context.consent(found.ref.id))
    result = await follow(context, operation)
    for note in console.secrets.further(found, _opened(context, console, result)):
        context.say(f"note: {note}")
    if context.json:
        context.record({"name": found.name, "ref": str(found.ref), "audit_id": result.audit_id} | result.details)
    return _tell(context, found, result, began)


def _opened(context: Context, console: Console, result: ActionResult) -> Sequence[str]:
    """The requested allow patterns, or else those that are open because a deny rule is gone."""
    if context.args.what == "allow":
        return list(context.args.hosts)
    before, after = (
        [EgressRule(one["pattern"], Effect(one["effect"]), one["until"]) for one in _list(result.details[when])]
        for when in ("before", "after")
    )
    return console.egress.opened(before, after)


def _action(context: Context, found: Sandbox, now: float) -> EgressAction:
    args = context.args
    if args.what == "remove":
        return ChangeEgress(found.ref, remove=tuple(args.hosts))
    until = now + _seconds(args.period) if args.period else None
    if args.what == "deny":
        return DenyEgress(found.ref, tuple(args.hosts), until)
    return ChangeEgress(found.ref, tuple(EgressRule(host, Effect.ALLOW, until, "live") for host in args.hosts))


def _seconds(text: str) -> float:
    try:
        seconds = quantities.parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None
    if seconds <= 0:
        raise UsageError(f"--for: {text} is not above 0")
    return seconds


def _tell(context: Context, found: Sandbox, result: ActionResult, began: float) -> int:
    """Print what was changed, as of the time of the request. Returns exit code 1 if the gateway does not apply it."""
    before, after = _texts(result.details["before"], began), _texts(result.details["after"], began)
    if not context.json:
        lines = [f"- {text}" for text in before if text not in after] + [
            f"+ {text}" for text in after if text not in before
        ]
        for line in lines or ["nothing differs"]:
            context.text(line)
    if unchecked := result.details["unchecked"]:
        context.say(f"note: the rules are stored, but the gateway could not be checked: {unchecked}")
    for one in _list(result.details["checked"]):
        where = f"{one['host']}:{one['port']}"
        if one["ok"]:
            context.say(f"in effect: {where} is {'allowed' if one['allowed'] else 'denied'}")
        else:
            by = f" by the rule {one['rule']}" if one["rule"] else ""
            why = f"not in effect on {found.name}: {where} is {'allowed' if one['allowed'] else 'denied'}{by}"
            context.fail(ConsoleError(why, hint=f"sandbox-console egress show {found.name}"))
    return context.code


def _list(value: object) -> list[Mapping[str, Any]]:
    return list(value) if isinstance(value, list) else []


def _texts(rules: object, now: float) -> list[str]:
    return [
        f"{rule['effect']} {rule['pattern']}"
        + (f" for {duration(round(rule['until'] - now))}" if rule["until"] is not None else "")
        for rule in _list(rules)
    ]
