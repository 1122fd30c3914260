"""``why`` and ``timeline``: show the cause of an end, and what happened around it."""

from __future__ import annotations

import asyncio

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import duration, moment, moment_ns, table
from sandbox_console.cli.logs import when
from sandbox_console.cli.lookup import find, find_named
from sandbox_console.model.timeline import Moment, Timeline
from sandbox_console.service.incident.cause import cause
from sandbox_console.service.incident.cause_sections import FIELDS, sections
from sandbox_console.service.incident.timeline import Span, timeline


async def incident(context: Context) -> int:
    """Run either of the two verbs."""
    return await (_cause(context) if context.args.verb == "why" else _timeline(context))


async def _cause(context: Context) -> int:
    async with context.open() as console:
        found = await cause(console, await find(context, console, context.args.name, changing=False))
    if context.json:
        context.record(found.as_dict())
        return 0
    context.text(f"{found.sandbox.name}  {found.sandbox.status}")
    for section in sections(found, context.now(), duration):
        context.text("")
        context.text(section.head)
        for line in table(FIELDS, section.rows) if section.rows else section.lines:
            context.text(f"  {line}")
    return 0


async def _timeline(context: Context) -> int:
    args, now = context.args, context.now()
    since, until = (None if text is None else when(text, now) for text in (args.since, args.until))
    async with context.open() as console:
        sandboxes = await find_named(context, console, context.args.names, changing=False)
        found = await timeline(console, sandboxes, Span(since, until))
    await asyncio.to_thread(_print, context, found, several=len(set(args.names)) > 1)
    return context.code


def _print(context: Context, timeline: Timeline, *, several: bool) -> None:
    for entry in timeline.moments:
        if context.json:
            context.record(entry.as_dict())
        else:
            context.text(_moment(entry, several=several))
    for gap in timeline.missing:
        if context.json:
            context.record(gap.as_dict())
        else:
            context.say(f"note: {gap.name}: {gap.source}: {gap.why}")
    for clock in timeline.clocks:
        if context.json:
            context.record(clock.as_dict())
        else:
            context.say(f"note: {clock}")


def _moment(one: Moment, *, several: bool) -> str:
    placed = "" if one.seq is None or one.seq > 0 else ", not placed yet"
    row = f"  [audit row {one.seq}{placed}]" if one.seq is not None else ""
    often = f"  ({one.count} times until {moment(one.last_at)})" if one.count > 1 else ""
    who = f"{one.name:<16}  " if several else ""
    return (
        f"{moment_ns(int(one.at * 1e6) * 1000)}  {who}{one.source:<7}  {one.what:<12}  {one.text}{row}{often}".rstrip()
    )
