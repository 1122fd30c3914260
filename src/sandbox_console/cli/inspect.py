"""``top``, ``diff``, ``inspect``, ``events`` and ``port``: show details of one sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import moment_ns, size
from sandbox_console.cli.logs import when
from sandbox_console.cli.lookup import find
from sandbox_console.cli.stats import RETRY_S
from sandbox_console.errors import BackendUnreachable, NotFound
from sandbox_console.model.guest import GuestEvent, GuestProcess
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console

_Look = Callable[[Context, Console, Sandbox], Awaitable[None]]

_PORT = "port "

_AFTER_S = 1e-6
"""How long after the last shown event the next request begins. Times have microseconds."""


async def inside(context: Context) -> int:
    """Find the sandbox and run the verb on it."""
    looks: dict[str, _Look] = {"top": _top, "diff": _diff, "inspect": _inspect, "events": _events, "port": _port}
    async with context.open() as console:
        sandbox = await find(context, console, context.args.name, changing=False)
        await looks[context.args.verb](context, console, sandbox)
    return context.code


def _of(sandbox: Sandbox) -> dict[str, Any]:
    return {"name": sandbox.name, "ref": str(sandbox.ref)}


async def _top(context: Context, console: Console, sandbox: Sandbox) -> None:
    """Print the processes, with their pids inside the sandbox if those are known."""
    processes = await console.inside.processes(sandbox.ref)
    head = ("PID", "PARENT", "USER", "CPU", "MEMORY", "STATE", "COMMAND")
    context.listing(head, processes, lambda process: _of(sandbox) | msgspec.to_builtins(process), _process)


def _process(process: GuestProcess) -> tuple[str, ...]:
    return (
        str(process.pid),
        "-" if process.parent is None else str(process.parent),
        process.user or "-",
        "-" if process.cpu_s is None else f"{process.cpu_s:.1f}s",
        size(process.memory_bytes),
        process.state or "-",
        process.command,
    )


async def _diff(context: Context, console: Console, sandbox: Sandbox) -> None:
    """Print the paths that differ from the image: A added, C changed, D deleted."""
    for change in await console.inside.changes(sandbox.ref):
        if context.json:
            context.record(_of(sandbox) | msgspec.to_builtins(change))
        else:
            context.text(f"{change.how[:1].upper()} {change.path}")


async def _inspect(context: Context, console: Console, sandbox: Sandbox) -> None:
    """Print the provider's own description, with the values of variables and secrets masked."""
    raw = await console.inside.raw(sandbox.ref)
    if context.json:
        context.record(_of(sandbox) | {"raw": raw})
        return
    for line in json.dumps(raw, indent=2, default=str).splitlines():
        context.text(line)


async def _events(context: Context, console: Console, sandbox: Sandbox) -> None:
    """Print the backend's events, oldest first; with ``--follow`` go on, even after the backend was away."""
    args = context.args
    since = None if args.since is None else when(args.since, context.now())
    away = False
    while True:
        guest_events = console.inside.guest_events(sandbox.ref, since=since, follow=args.follow)
        try:
            async with aclosing(guest_events) as events:  # type: ignore[type-var]
                async for event in events:
                    since, away = event.at + _AFTER_S, False
                    _print_guest_event(context, sandbox, event)
            return
        except BackendUnreachable as error:
            if not args.follow:
                raise
            if not away:
                context.say(f"{error.message}; waiting for it: what happens meanwhile may be missing")
            away = True
            await asyncio.sleep(RETRY_S)


def _print_guest_event(context: Context, sandbox: Sandbox, event: GuestEvent) -> None:
    if context.json:
        context.record(_of(sandbox) | msgspec.to_builtins(event))
    else:
        context.text(_guest_event_line(event))


def _guest_event_line(event: GuestEvent) -> str:
    attributes = " ".join(f"{key}={value}" for key, value in sorted(event.attributes.items()) if value)
    return "  ".join(
        filter(None, [moment_ns(int(event.at * 1e6) * 1000), f"{event.what:<12}", event.detail, attributes])
    ).rstrip()


async def _port(context: Context, console: Console, sandbox: Sandbox) -> None:
    """Print the ports of the sandbox and the addresses at which this or the engine's host serves them."""
    facts = [fact for fact in (await console.inspect(sandbox.ref)).effective if fact.field.startswith(_PORT)]
    if not facts:
        raise NotFound(f"{sandbox.name} has no ports", hint=f"sandbox-console show {sandbox.name}")
    for fact in facts:
        port = fact.field.removeprefix(_PORT)
        if context.json:
            context.record(_of(sandbox) | {"port": port, "places": fact.value, "note": fact.note})
        else:
            context.text(f"{port} -> {fact.value}" + (f"  ({fact.note})" if fact.note else ""))
