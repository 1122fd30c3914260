"""``why`` and ``timeline``: show the cause of an end, and what happened around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import duration, moment, moment_ns, table
from sandbox_console.cli.logs import when
from sandbox_console.cli.lookup import find, find_named
from sandbox_console.model.egress import OUTCOMES, REASONS, EgressRecord
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.timeline import Moment, Timeline
from sandbox_console.service.incident.cause import DENIED_S, Cause, cause
from sandbox_console.service.incident.timeline import Span, timeline


async def incident(context: Context) -> int:
    """Run either of the two verbs."""
    return await (_why(context) if context.args.verb == "why" else _timeline(context))


async def _why(context: Context) -> int:
    async with context.open() as console:
        found = await cause(console, await find(context, console, context.args.name, changing=False))
    if context.json:
        context.record(found.as_dict())
        return 0
    context.text(f"{found.sandbox.name}  {found.sandbox.status}")
    for head, lines in _sections(context, found):
        if lines:
            context.text("")
            context.text(head)
            for line in lines:
                context.text(f"  {line}")
    return 0


def _sections(context: Context, found: Cause) -> Iterable[tuple[str, Sequence[str]]]:
    """Headings with their lines. Headings without a line are left out."""
    judged = found.verdict
    said = f"it is {found.sandbox.status}: it has not ended" if judged is None else judged.headline
    yield "Why" + ("" if judged is None or judged.sure else " (not sure)"), [said]
    yield "Evidence", judged.evidence if judged else ()
    yield "Its last lines", found.last_words
    yield f"Denied or failed in the {DENIED_S:.0f} s before", [_denial(found.sandbox, one) for one in found.denied]
    yield (
        "Changed by",
        [
            f"audit row {one.attempt.seq}: {one.attempt.action} by {one.attempt.actor}, "
            f"{duration(context.now() - one.attempt.at_ns / 1e9)} ago: {one.outcome or 'in flight'}"
            for one in found.changed
        ],
    )
    yield (
        f"Unlike {found.beside}, which is healthy",
        table(("FIELD", "HERE", "THERE"), found.differs) if found.differs else (),
    )
    yield "What would have settled it", found.missing


def _denial(sandbox: Sandbox, one: EgressRecord) -> str:
    end = sandbox.finished_at
    before = f", {max(0.0, end - one.at):.1f} s before" if end else ""
    said = OUTCOMES[one.outcome]
    return f"{one.host}:{one.port} {said}: {REASONS.get(one.reason, one.reason)}{before}"


async def _timeline(context: Context) -> int:
    args, now = context.args, context.now()
    since, until = (None if text is None else when(text, now) for text in (args.since, args.until))
    async with context.open() as console:
        sandboxes = await find_named(context, console, context.args.names, changing=False)
        told = await timeline(console, sandboxes, Span(since, until))
    await asyncio.to_thread(_print, context, told, several=len(set(args.names)) > 1)
    return context.code


def _print(context: Context, told: Timeline, *, several: bool) -> None:
    for one in told.moments:
        if context.json:
            context.record(one.as_dict())
        else:
            context.text(_moment(one, several=several))
    for gap in told.missing:
        if context.json:
            context.record(gap.as_dict())
        else:
            context.say(f"note: {gap.name}: {gap.source}: {gap.why}")


def _moment(one: Moment, *, several: bool) -> str:
    row = f"  [audit row {one.seq}]" if one.seq is not None else ""
    often = f"  ({one.count} times until {moment(one.last_at)})" if one.count > 1 else ""
    who = f"{one.name:<16}  " if several else ""
    return (
        f"{moment_ns(int(one.at * 1e6) * 1000)}  {who}{one.source:<7}  {one.what:<12}  {one.text}{row}{often}".rstrip()
    )
