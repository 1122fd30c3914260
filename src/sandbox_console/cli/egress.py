"""``egress``: what sandboxes may reach and what they tried, and changing it while they run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.create import follow
from sandbox_console.cli.lookup import find
from sandbox_console.cli.spec_options import read_file, read_text
from sandbox_console.cli.text import duration, moment
from sandbox_console.errors import ConsoleError, InvalidSpec, UsageError
from sandbox_console.hostfs.places import NOBODYS, Ground
from sandbox_console.model import check, hosts
from sandbox_console.model.action import ChangeEgress, DenyEgress, EgressAction
from sandbox_console.model.egress import REASONS, Effect, EgressRecord, EgressRule
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import ActionResult, Console, Feed, HostSeen, Replayed, has_gateway, read_draft

_HOSTS_HEAD = ("HOST", "PORTS", "DENIED", "ALLOWED", "FIRST", "LAST", "SANDBOXES", "LAST DECISION")


async def egress(context: Context) -> int:
    """``show``, ``allow``, ``deny``, ``remove``, ``test``, ``replay``, ``ls`` or ``feed``."""
    verbs = {"show": _show, "allow": _change, "deny": _change, "remove": _change, "test": _test, "replay": _replay}
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


# Seeing


async def _show(context: Context, console: Console, found: Sandbox) -> int:
    state = await console.egress.state(found.ref)
    if context.json:
        for rule in state.rules:
            context.record({"kind": "rule", "name": found.name} | _rule(rule))
    else:
        now = context.now()
        rows = ((rule.pattern, str(rule.effect), _left(rule, now), rule.source) for rule in state.rules)
        context.table(("RULE", "EFFECT", "LEFT", "SOURCE"), rows)
    if not has_gateway(found):
        context.say("it was made without egress: nothing leaves it")
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
    async for sandbox, record in console.egress.feed(since=since, refused=_tell_unread(context)):
        if context.backend[0] in ("", sandbox.ref.backend):
            feed.add(sandbox.ref, sandbox.name, record)
    found = feed.hosts(denied_only=not context.args.all)
    _print_hosts(context, found)
    if feed.forgotten:
        context.say(f"{feed.forgotten} hosts that were not heard of for longest are left out")
    if not found and not context.failures:
        context.say("nothing was denied" if not context.args.all else "nothing is on record")
    return context.code


async def _feed(context: Context, console: Console) -> int:
    since, refused = _since(context), _tell_unread(context)
    if context.args.follow:
        async for _, record in console.egress.feed(since=since or context.now(), follow=True, refused=refused):
            if _wanted(context, record):
                _print_record(context, record)
    records = console.egress.feed(since=since, refused=refused)
    found = [record async for _, record in records if _wanted(context, record)]
    for record in sorted(found, key=lambda record: record.at):
        _print_record(context, record)
    return context.code


def _tell_unread(context: Context) -> Callable[[Sandbox, ConsoleError | None], None]:
    """Tells once of each sandbox whose records cannot be read: that is no list of nothing."""
    told: set[SandboxRef] = set()

    def tell(sandbox: Sandbox, error: ConsoleError | None) -> None:
        if error is None:
            told.discard(sandbox.ref)
        elif sandbox.ref not in told:
            told.add(sandbox.ref)
            context.fail(error, sandbox.name)

    return tell


def _wanted(context: Context, record: EgressRecord) -> bool:
    return context.args.all or not record.allowed


def _since(context: Context) -> float | None:
    if not context.args.since:
        return None
    try:
        return context.now() - check.parse_duration_s(context.args.since)
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
    last = f"denied: {REASONS.get(seen.reason, seen.reason)}" if seen.last_denied else f"allowed by {seen.rule or '-'}"
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
        "first": seen.first,
        "last": seen.last,
        "reason": seen.reason,
        "rule": seen.rule,
        "sent_bytes": seen.sent_bytes,
        "received_bytes": seen.received_bytes,
        "sandboxes": sorted(map(str, seen.refs)),
    }


def _print_record(context: Context, record: EgressRecord) -> None:
    if context.json:
        context.record({"kind": "record"} | json_output.egress_record(record))
        return
    why = REASONS.get(record.reason, record.reason)
    said = "ended" if record.ended and not record.reason else "allowed" if record.allowed else "denied"
    by = f"by {record.rule}" if record.rule else ""
    words = [moment(record.at), record.sandbox, said, f"{record.host}:{record.port}", why, by]
    context.text("  ".join(filter(None, words)))


def _rule(rule: EgressRule) -> dict[str, Any]:
    return {"pattern": rule.pattern, "effect": str(rule.effect), "until": rule.until, "source": rule.source}


def _left(rule: EgressRule, now: float) -> str:
    return "for good" if rule.until is None else duration(rule.until - now)


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
    """What was asked to be allowed, else what is open because a denial is gone."""
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
        seconds = check.parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None
    if seconds <= 0:
        raise UsageError(f"--for: {text} is not above 0")
    return seconds


def _tell(context: Context, found: Sandbox, result: ActionResult, began: float) -> int:
    """What was changed on stdout, as of when it was asked; exit 1 where the gateway does not go by it."""
    before, after = _texts(result.details["before"], began), _texts(result.details["after"], began)
    if not context.json:
        lines = [f"- {text}" for text in before if text not in after] + [
            f"+ {text}" for text in after if text not in before
        ]
        for line in lines or ["nothing differs"]:
            context.text(line)
    if unchecked := result.details["unchecked"]:
        context.say(f"note: the rules are kept; the gateway could not be asked: {unchecked}")
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


# Explaining


async def _test(context: Context, console: Console, found: Sandbox) -> int:
    host, port = split_target(context.args.host)
    said, rule = await console.egress.explain(found.ref, host, port)
    told = {"allowed": said.allowed, "reason": said.reason, "rule": said.rule, "hint": said.hint}
    if context.json:
        source = {"until": rule.until if rule else None, "source": rule.source if rule else ""}
        context.record({"name": found.name, "ref": str(found.ref), "host": host, "port": port} | told | source)
        return 0 if said.allowed else 1
    by = ""
    if rule is not None:
        by = f" by the rule {rule.pattern} ({rule.source}, {_left(rule, context.now())})"
    why = "" if said.allowed or rule is not None else f": {REASONS.get(said.reason, said.reason)}"
    context.text(f"{host}:{port} is {'allowed' if said.allowed else 'denied'}{by}{why}")
    if said.hint:
        context.say(f"note: {said.hint}")
    return 0 if said.allowed else 1


def split_target(text: str) -> tuple[str, int]:
    """HOST or HOST:PORT; without a port 443. Raises UsageError."""
    if not text.strip():
        raise UsageError("a host is needed, and '' is none", hint="write example.com, or example.com:8443")
    if "://" in text:
        bare = text.partition("://")[2].partition("/")[0]
        raise UsageError(f"{text!r} has a scheme; write only the host, as in {bare!r}")
    if hosts.parse_address(text) is not None:  # the colons of an IPv6 address are not a port's
        return text, 443
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, 443
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError(f"{text!r} has a port that is not a number from 1 to 65535")
    return host, int(port)


async def _replay(context: Context, console: Console, found: Sandbox) -> int:
    """What a draft would newly deny or allow; exit 1 where it would deny what was allowed."""
    ground = await console.ground() if context.args.policy or context.args.draft else NOBODYS
    rules = [*_draft(context, ground), *await _draft_lines(context, console, found, ground)]
    if not rules:
        raise UsageError("a draft is needed", hint="--egress PATTERN, --draft FILE, or --policy FILE")
    replayed = await console.egress.replay(found.ref, rules)
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


def _draft(context: Context, ground: Ground) -> Sequence[EgressRule]:
    patterns = list(context.args.egress)
    if context.args.policy:
        patterns += _patterns(read_file(context.args.policy, ground), context.args.policy)
    for pattern in patterns:
        try:
            hosts.parse(pattern, allow_ip=True)
        except ValueError as error:
            raise InvalidSpec({"egress": str(error)}) from None
    return [EgressRule(pattern) for pattern in patterns]


async def _draft_lines(context: Context, console: Console, found: Sandbox, ground: Ground) -> Sequence[EgressRule]:
    """The rules of ``--draft``, where a line may name one in force with its time. Raises InvalidSpec by line."""
    if not context.args.draft:
        return []
    text = await asyncio.to_thread(read_text, context.args.draft, ground)
    known = (await console.egress.state(found.ref)).rules
    lines = read_draft(text, context.now(), known=known, allow_ip=True)
    if wrong := {f"line {at}": line.problem for at, line in enumerate(lines, 1) if line.problem}:
        raise InvalidSpec(wrong)
    return [line.rule for line in lines if line.rule is not None]


def _patterns(values: Mapping[str, Any], name: str) -> Iterable[str]:
    """``egress`` of a spec, or of the ``[policy]`` table of a configuration."""
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
