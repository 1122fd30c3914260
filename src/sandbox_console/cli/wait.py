"""``wait``: waits until sandboxes have ended, and reports how."""

from __future__ import annotations

import asyncio

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.lifecycle import seconds
from sandbox_console.cli.lookup import find_all
from sandbox_console.cli.ls import exit_text
from sandbox_console.errors import ConsoleError, TimedOut
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.service import Console

LOOK_S = 0.5
"""The time between two checks of a sandbox that is still alive."""


async def wait(context: Context) -> int:
    """Wait until each NAME has ended. Prints its exit code on a line, like ``docker wait``, or ``-`` if it is unknown.

    A sandbox that was never started is waited for. With ``--timeout``, exit 9 if any is still alive by then.
    """
    names = list(dict.fromkeys(context.args.names))
    limit = None if context.args.timeout is None else seconds(context.args.timeout, "timeout")
    async with context.open() as console:
        founds = await find_all(context, console, names, changing=False)
        ends = [asyncio.ensure_future(_ended(console, found, limit)) for found in founds]
        for name, end in zip(names, ends, strict=True):
            _print(context, name, await end)
    return context.code


async def _ended(console: Console, found: Sandbox | ConsoleError, limit_s: float | None) -> Sandbox | ConsoleError:
    if isinstance(found, ConsoleError):
        return found
    try:
        async with asyncio.timeout(limit_s):
            while found.status.live or found.status in (Status.CREATED, Status.UNKNOWN):
                await asyncio.sleep(LOOK_S)
                found = await console.inspect(found.ref)
    except TimeoutError:
        return TimedOut(f"{found.name} is {found.status} after {limit_s:g} s", hint="wait longer: --timeout")
    except ConsoleError as error:
        return error
    return found


def _print(context: Context, name: str, end: Sandbox | ConsoleError) -> None:
    if isinstance(end, ConsoleError):
        context.fail(end, name if len(context.args.names) > 1 else "")
    elif context.json:
        context.record(json_output.sandbox(end))
    else:
        context.text(exit_text(end).split()[0])
