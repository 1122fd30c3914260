"""``start``, ``stop``, ``kill``, ``restart``, ``pause``, ``resume``, ``rm``, ``prune``: a result for each sandbox."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import find_all
from sandbox_console.cli.next_step import add_next_step
from sandbox_console.cli.selection import chosen
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model.action import Action, Kill, Pause, Remove, Restart, Resume, Start, Stop
from sandbox_console.model.quantities import parse_duration_s
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import ActionResult, Console

AT_ONCE = 32
"""How many NAMEs are handled at once. An engine that gets more requests answers none of them in time."""

_Make = Callable[[SandboxRef, argparse.Namespace], Action]

_ACTIONS: dict[str, _Make] = {
    "start": lambda ref, _: Start(ref),
    "stop": lambda ref, args: Stop(ref, seconds(args.grace, "grace")),
    "kill": lambda ref, args: Kill(ref, _signal(args.signal)),
    "restart": lambda ref, args: Restart(ref, seconds(args.grace, "grace")),
    "pause": lambda ref, _: Pause(ref),
    "resume": lambda ref, _: Resume(ref),
    "rm": lambda ref, args: Remove(ref, args.force),
    "prune": lambda ref, _: Remove(ref),
}


async def lifecycle(context: Context) -> int:
    """Run the verb on all NAMEs, or all with a label, at once. The results are printed in their order.

    The exit code is that of the first failure.
    """
    make = _ACTIONS[context.args.verb]
    make(SandboxRef("", "", ""), context.args)  # wrong arguments are reported before anything is done
    async with context.open() as console:
        names = context.args.names = await chosen(context, console)
        founds = await find_all(context, console, names, changing=True)
        at_once = asyncio.Semaphore(AT_ONCE)
        ends = [asyncio.ensure_future(_one(context, console, make, found, at_once)) for found in founds]
        for name, end in zip(names, ends, strict=True):
            _print(context, name, *await end)
    return context.code


async def _one(
    context: Context, console: Console, make: _Make, found: Sandbox | ConsoleError, at_once: asyncio.Semaphore
) -> tuple[Sandbox | None, ActionResult | ConsoleError]:
    if isinstance(found, ConsoleError):
        return None, found
    async with at_once:
        operation = console.perform(make(found.ref, context.args), consent=context.consent(found.ref.id))
        try:
            return found, await operation.result()
        except ConsoleError as error:
            return found, error


def _print(context: Context, name: str, sandbox: Sandbox | None, end: ActionResult | ConsoleError) -> None:
    failed = end if isinstance(end, ConsoleError) else None
    if failed is not None:
        add_next_step(failed, context.args)
    if context.json:
        result: dict[str, Any] = {
            "name": sandbox.name if sandbox else name,
            "ref": str(sandbox.ref) if sandbox else None,
            "action": context.args.verb,
            "ok": failed is None,
            "audit_id": end.audit_id,
            "error": failed.as_dict() if failed else None,
        }
        context.record(result)
    if failed is not None:
        context.fail(failed, name if len(context.args.names) > 1 else "")
    elif not context.json and sandbox is not None:
        context.text(sandbox.name)


def seconds(text: str, option: str) -> float:
    """An option's duration in seconds. Raises UsageError."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"--{option}: {error}", hint="as in 90s, 15m, 2h") from None


def _signal(name: str) -> str:
    import signal

    if name.isdecimal() and name.isascii():
        try:
            return signal.Signals(int(name)).name
        except ValueError:
            raise UsageError(f"--signal: there is no signal {name}", hint="as in 9, TERM, INT, KILL") from None
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if full not in signal.Signals.__members__:
        raise UsageError(f"--signal: {name!r} is not a signal", hint="as in TERM, INT, KILL")
    return full
