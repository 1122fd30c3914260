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
    ports = _wanted(context.args.ports)
    async with context.open() as console:
        sandbox = await find(context, console, context.args.name, changing=True)
        forwards: list[HeldForward] = []
        try:
            for port in ports:
                action = Forward(sandbox.ref, port.port, port.address, port.host_port)
                forwards.append(await held_forward(console, action, consent=context.consent(sandbox.ref.id)))
            await _until_over(context, sandbox, forwards)
        finally:
            await run_to_completion(_release(context, forwards))
    return 0


def _wanted(texts: Sequence[str]) -> tuple[PublishedPort, ...]:
    try:
        return ports.parse_all(texts)
    except ValueError as error:
        raise UsageError(str(error), hint="sandbox-console forward web 8080:80") from None


async def _until_over(context: Context, sandbox: Sandbox, forwards: Sequence[HeldForward]) -> None:
    for forward in forwards:
        _print(context, sandbox, forward)
    talking = [asyncio.ensure_future(_talk(context, forward)) for forward in forwards]
    ends = [asyncio.ensure_future(forward.ended()) for forward in forwards]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        reason = next(end for end in ends if end.done()).result()
    finally:
        for task in (*talking, *ends):
            task.cancel()
        await asyncio.gather(*talking, *ends, return_exceptions=True)
    raise Conflict(reason, hint=f"sandbox-console show {sandbox.name}")


def _print(context: Context, sandbox: Sandbox, forward: HeldForward) -> None:
    host_address, port, audit_id = (
        forward.forwarding.host_address,
        forward.forwarding.action.port,
        forward.forwarding.audit_id,
    )
    if context.json:
        context.record(
            {"name": sandbox.name, "ref": str(sandbox.ref), "port": port, "place": host_address, "audit_id": audit_id}
        )
    else:
        context.text(f"{host_address} -> {sandbox.name}:{port}")


async def _talk(context: Context, forward: HeldForward) -> None:
    """Report problems with connections."""
    announced = False
    async for text in forward.operation.events():
        if announced:
            context.say(text)
        announced = True  # the first is the address, which is on stdout


async def _release(context: Context, forwards: Sequence[HeldForward]) -> None:
    for forward in forwards:
        with suppress(asyncio.CancelledError):
            await forward.release()
        if forward.forwarding.connections:
            context.say(_sum(forward))


def _sum(forward: HeldForward) -> str:
    forwarding = forward.forwarding
    count = f"{forwarding.connections} connection{'s' if forwarding.connections > 1 else ''}"
    return f"{forwarding.host_address}: {count}, {forwarding.total.bytes_out} bytes out, {forwarding.total.bytes_in} in"
