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
from sandbox_console.cli.presets import presets
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model import quantities
from sandbox_console.model.action import ChangeEgress, DenyEgress, EgressAction
from sandbox_console.model.egress import OUTCOMES, REASONS, Effect, EgressRecord, EgressRule
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef
from sandbox_console.service import ActionResult, Console, Feed, HostSeen, has_gateway

_HOSTS_HEAD = ("HOST", "PORTS", "DENIED", "ALLOWED", "FIRST", "LAST", "SANDBOXES", "LAST DECISION")


async def egress(context: Context) -> int:
    """``show``, ``allow``, ``deny``, ``remove``, ``test``, ``replay``, ``ls``, ``feed`` or ``presets``."""
    if context.args.what == "presets":
        return await presets(context)
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
                sandbox = await console.inspect(named.ref)
                return await verbs[what](context, console, sandbox)


# Reading


async def _show(context: Context, console: Console, sandbox: Sandbox) -> int:
    state = await console.egress.state(sandbox.ref)
    if context.json:
        for rule in state.rules:
            context.record({"kind": "rule", "name": sandbox.name} | _rule(rule))
    else:
        now = context.now()
        rows = ((rule.pattern, str(rule.effect), time_left(rule, now), rule.source) for rule in state.rules)
        context.table(("RULE", "EFFECT", "LEFT", "SOURCE"), rows)
    if not has_gateway(sandbox):
        context.say("it was made without egress, so nothing can leave it")
    elif state.gateway:
        context.say(f"warning: the gateway does not answer: {state.gateway}")
    feed = Feed()
    since = context.now()
    async for record in console.egress.records(sandbox.ref):
        feed.add(sandbox.ref, sandbox.name, record)
    _print_hosts(context, feed.hosts(), blank=True)
    if context.args.follow:
        async for record in console.egress.records(sandbox.ref, since=since, follow=True):
            _print_record(context, record)
    return 0


async def _ls(context: Context, console: Console) -> int:
    since = _since(context)
    feed = Feed()
    warned = _tell_silent(context, console)
    async for sandbox, record in console.egress.feed(since=since, refused=_tell_unread(context), answered=warned):
        if context.backend[0] in ("", sandbox.ref.backend):
            feed.add(sandbox.ref, sandbox.name, record)
    hosts = feed.hosts(denied_only=not context.args.all)
    _print_hosts(context, hosts)
    if feed.forgotten:
        context.say(f"{feed.forgotten} hosts that were requested longest ago are left out")
    if not hosts and not context.failures:
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
    return lambda healths: warn_of_the_silent(
        context, console, [health for health in healths if wanted in ("", health.backend)]
    )


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


def _print_hosts(context: Context, hosts: Sequence[HostSeen], *, blank: bool = False) -> None:
    if context.json:
        for host in hosts:
            context.record(host_data(host))
        return
    if blank and hosts:
        context.streams.out.line("")
    if hosts or not blank:
        context.table(_HOSTS_HEAD, (_host_cells(host) for host in hosts))


def _host_cells(host: HostSeen) -> tuple[str, ...]:
    ports = ",".join(map(str, sorted(host.ports)))
    last = f"{OUTCOMES[host.outcome]}: {REASONS.get(host.reason, host.reason)}"
    if host.asker:
        last = f"asked for by {host.asker}"
    elif not host.reason:
        last = f"allowed by {host.rule or '-'}"
    names = " ".join(sorted(set(host.refs.values())))
    return host.host, ports, str(host.denied), str(host.allowed), moment(host.first), moment(host.last), names, last


def host_data(host: HostSeen) -> dict[str, Any]:
    """One host of a feed."""
    return {
        "kind": "host",
        "host": host.host,
        "ports": sorted(host.ports),
        "denied": host.denied,
        "allowed": host.allowed,
        "unresolved": host.unresolved,
        "failed": host.failed,
        "outcome": str(host.outcome),
        "first": host.first,
        "last": host.last,
        "reason": host.reason,
        "rule": host.rule,
        "asker": host.asker,
        "sent_bytes": host.sent_bytes,
        "received_bytes": host.received_bytes,
        "sandboxes": sorted(map(str, host.refs)),
    }


def _print_record(context: Context, record: EgressRecord) -> None:
    if context.json:
        context.record({"kind": "record"} | json_output.egress_record(record))
        return
    reason = REASONS.get(record.reason, record.reason)
    outcome = "ended" if record.ended and not record.reason else OUTCOMES[record.outcome]
    by = f"by {record.rule}" if record.rule else ""
    words = [moment(record.at), record.sandbox, outcome, f"{record.host}:{record.port}", reason, by]
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


def _action(context: Context, sandbox: Sandbox, now: float) -> EgressAction:
    args = context.args
    if args.what == "remove":
        return ChangeEgress(sandbox.ref, remove=tuple(args.hosts))
    until = now + _seconds(args.period) if args.period else None
    if args.what == "deny":
        return DenyEgress(sandbox.ref, tuple(args.hosts), until)
    return ChangeEgress(sandbox.ref, tuple(EgressRule(host, Effect.ALLOW, until, "live") for host in args.hosts))


def _seconds(text: str) -> float:
    try:
        seconds = quantities.parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None
    if seconds <= 0:
        raise UsageError(f"--for: {text} is not above 0")
    return seconds


def _tell(context: Context, sandbox: Sandbox, result: ActionResult, began: float) -> int:
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
        target = f"{one['host']}:{one['port']}"
        if one["ok"]:
            context.say(f"in effect: {target} is {'allowed' if one['allowed'] else 'denied'}")
        else:
            by = f" by the rule {one['rule']}" if one["rule"] else ""
            problem = f"not in effect on {sandbox.name}: {target} is {'allowed' if one['allowed'] else 'denied'}{by}"
            context.fail(ConsoleError(problem, hint=f"sandbox-console egress show {sandbox.name}"))
    return context.code


def _list(value: object) -> list[Mapping[str, Any]]:
    return list(value) if isinstance(value, list) else []


def _texts(rules: object, now: float) -> list[str]:
    return [
        f"{rule['effect']} {rule['pattern']}"
        + (f" for {duration(round(rule['until'] - now))}" if rule["until"] is not None else "")
        for rule in _list(rules)
    ]
