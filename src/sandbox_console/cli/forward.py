"""``forward``: forwards ports of a running sandbox to this machine until Ctrl+C."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import find
from sandbox_console.errors import Conflict, UsageError
from sandbox_console.model import ports
from sandbox_console.model.action import Forward
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.ports import PublishedPort
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service.sessions.forward import HeldForward
from sandbox_console.service.sessions.forward import forward as held_forward


async def forward(context: Context) -> int:
    """Forward ports of a sandbox, whatever its network; all of them or none. Prints each address once all are ready.

    It goes on until it is interrupted or the sandbox ends. The latter is an error.
    """
    wanted = _wanted(context.args.ports)
    async with context.open() as console:
        found = await find(context, console, context.args.name, changing=True)
        held: list[HeldForward] = []
        try:
            for one in wanted:
                action = Forward(found.ref, one.port, one.address, one.host_port)
                held.append(await held_forward(console, action, consent=context.consent(found.ref.id)))
            await _until_over(context, found, held)
        finally:
            await run_to_completion(_let_go(context, held))
    return 0


def _wanted(texts: Sequence[str]) -> tuple[PublishedPort, ...]:
    try:
        return ports.parse_all(texts)
    except ValueError as error:
        raise UsageError(str(error), hint="sandbox-console forward web 8080:80") from None


async def _until_over(context: Context, found: Sandbox, held: Sequence[HeldForward]) -> None:
    for one in held:
        _print(context, found, one)
    talking = [asyncio.ensure_future(_talk(context, one)) for one in held]
    ends = [asyncio.ensure_future(one.ended()) for one in held]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        reason = next(end for end in ends if end.done()).result()
    finally:
        for task in (*talking, *ends):
            task.cancel()
        await asyncio.gather(*talking, *ends, return_exceptions=True)
    raise Conflict(reason, hint=f"sandbox-console show {found.name}")


def _print(context: Context, found: Sandbox, one: HeldForward) -> None:
    place, port, audit_id = one.forwarding.place, one.forwarding.action.port, one.forwarding.audit_id
    if context.json:
        context.record({"name": found.name, "ref": str(found.ref), "port": port, "place": place, "audit_id": audit_id})
    else:
        context.text(f"{place} -> {found.name}:{port}")


async def _talk(context: Context, one: HeldForward) -> None:
    """Report problems with connections."""
    announced = False
    async for text in one.operation.events():
        if announced:
            context.say(text)
        announced = True  # the first is the address, which is on stdout


async def _let_go(context: Context, held: Sequence[HeldForward]) -> None:
    for one in held:
        with suppress(asyncio.CancelledError):
            await one.let_go()
        if one.forwarding.connections:
            context.say(_sum(one))


def _sum(one: HeldForward) -> str:
    held = one.forwarding
    count = f"{held.connections} connection{'s' if held.connections > 1 else ''}"
    return f"{held.place}: {count}, {held.total.bytes_out} bytes out, {held.total.bytes_in} in"
