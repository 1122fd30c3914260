"""The shells, forwards and attached sessions of this console, which a quarantine made by any console ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Attach, Forward, ref_of
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.gate.operation import Operation
from sandbox_console.service.gate.quarantine_store import Holds
from sandbox_console.service.sessions.shell import ShellSession

LOOK_S = 1.0
"""How often to check whether another console has put a sandbox into quarantine, while something is open."""
_CLOSE_S = 2.0
"""How long a quarantine waits for a shell to close. The freeze that follows stops what is left of it."""


class OpenSessions:
    """The open sessions. Those of a sandbox in quarantine, or that may no longer be entered, are ended."""

    def __init__(
        self, holds: Holds, end_kept: Callable[[SandboxRef], Awaitable[int]],
        may_enter: Callable[[SandboxRef], Awaitable[bool]],
    ) -> None:  # fmt: skip
        self._holds, self._end_kept, self._may_enter = holds, end_kept, may_enter
        self._shells: set[ShellSession] = set()
        self._operations: set[Operation] = set()
        self._looking: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, session: ShellSession) -> None:
        """Add a shell that was opened."""
        self._shells.add(session)
        self._look()

    def note(self, operation: Operation) -> None:
        """Note an action that was started, as a forward or an attach goes on until somebody ends it."""
        if isinstance(operation.action, Forward | Attach):
            self._operations.add(operation)
            self._look()

    def count(self, ref: SandboxRef) -> int:
        """How many shells, forwards and attached sessions of a sandbox are open in this console."""
        self._forget()
        return sum(one.request.ref == ref for one in self._shells) + sum(
            ref_of(one.action) == ref for one in self._operations
        )

    async def end(self, ref: SandboxRef) -> int:
        """End all sessions of a sandbox, and its kept shells. Returns how many there were."""
        kept = await self._end_kept(ref)
        return kept + await self._end_own(ref)

    async def _end_own(self, ref: SandboxRef) -> int:
        self._forget()
        shells = [one for one in self._shells if one.request.ref == ref]
        operations = [one for one in self._operations if ref_of(one.action) == ref]
        closing = {asyncio.create_task(_closed(one)) for one in shells}
        closing |= {asyncio.create_task(_cancelled(one)) for one in operations}
        if closing:
            self._closing |= closing
            await asyncio.wait(closing, timeout=_CLOSE_S)
            self._closing = {one for one in self._closing if not one.done()}
        return len(shells) + len(operations)

    async def close(self) -> None:
        """Stop, because the console is closed."""
        if self._looking is not None:
            self._looking.cancel()
        tasks = [shell.close() for shell in self._shells]
        await asyncio.gather(*tasks, *self._closing, return_exceptions=True)

    def _forget(self) -> None:
        self._shells = {one for one in self._shells if not one.closed}
        self._operations = {one for one in self._operations if not one.done}

    def _look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._forget()
            refs = {one.request.ref for one in self._shells} | {ref_of(one.action) for one in self._operations}
            if not refs:
                return
            await asyncio.to_thread(self._holds.all)
            for ref in refs:
                if ref is not None and (self._holds.holding(ref) or not await self._may_enter(ref)):
                    await self._end_own(ref)  # the console that made the quarantine has ended the kept ones


async def _closed(session: ShellSession) -> None:
    with suppress(ConsoleError):
        await session.close()


async def _cancelled(operation: Operation) -> None:
    operation.cancel()
    with suppress(ConsoleError, asyncio.CancelledError):
        await operation.result()
