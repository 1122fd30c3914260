"""A forward as a face holds it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Forward
from sandbox_console.service.effects.port_forward import Forwarding
from sandbox_console.service.gate.gate import Consent, Performs
from sandbox_console.service.gate.operation import ExecIO, Hold, Operation


class HeldForward:
    """An open forward. It is made by :func:`forward`; the caller ends it with :meth:`release`."""

    def __init__(self, operation: Operation, forwarding: Forwarding) -> None:
        self.operation, self.forwarding = operation, forwarding

    async def ended(self) -> str:
        """Wait for the end. Returns why the sandbox ended it; empty if the caller did. Raises the action's error."""
        return str((await self.operation.result()).details.get("end", ""))

    async def release(self) -> None:
        """End it, and wait until its outcome is recorded."""
        await self.forwarding.release()
        with contextlib.suppress(ConsoleError):
            await self.operation.result()


async def forward(console: Performs, request: Forward, *, consent: Consent) -> HeldForward:
    """Forward a port through the gate; returns once the forward listens. Raises what the action raises."""
    listens: asyncio.Future[Forwarding] = asyncio.get_running_loop().create_future()

    def opened(hold: Hold) -> None:
        if isinstance(hold, Forwarding) and not listens.done():
            listens.set_result(hold)

    operation = console.perform(request, consent=consent, io=ExecIO(on_held=opened))
    ending = asyncio.ensure_future(operation.result())
    try:
        await asyncio.wait(list[asyncio.Future[Any]]((listens, ending)), return_when=asyncio.FIRST_COMPLETED)
        if not listens.done():
            await ending
        return HeldForward(operation, listens.result())
    except BaseException:
        operation.cancel()
        raise
    finally:
        ending.cancel()  # cancels only the wait: the operation goes on
