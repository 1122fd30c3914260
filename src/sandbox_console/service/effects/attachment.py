"""Attaches to the main process of a sandbox: shows its output and feeds it until it ends or is detached."""

from __future__ import annotations

from sandbox_console.backends.abilities import OnTerminal
from sandbox_console.backends.base import Process
from sandbox_console.model.action import Permit
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.effects.call import Call
from sandbox_console.service.effects.process import run_to_end
from sandbox_console.service.gate.operation import ActionResult


async def watch(process: Process, permit: Permit, ref: SandboxRef, call: Call) -> ActionResult:
    """Pass on an attached process's output and input, until it ends or is detached."""
    if call.io.on_held is not None:
        call.io.on_held(Attachment(process))
    ran = await run_to_end(process, call.io, call.redactor, None)
    details: dict[str, object] = {"bytes": ran.bytes_out} | ({"end": ran.exit.reason} if ran.exit.reason else {})
    return ActionResult(permit.audit_id, ref, exit_code=ran.exit.code, details=details)


class Attachment:
    """An attachment to a main process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._terminal = process if isinstance(process, OnTerminal) else None

    @property
    def tty(self) -> bool:
        """Whether the process has a terminal, which echoes what is typed. Otherwise lines go to a pipe."""
        return self._terminal is not None and self._terminal.tty

    @property
    def takes_input(self) -> bool:
        """Whether the process reads what is typed."""
        return self._terminal is not None and self._terminal.takes_input

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the process's terminal."""
        if self._terminal is not None:
            await self._terminal.resize(cols, rows)

    async def release(self) -> None:
        """Detach; the process keeps running."""
        await self._process.kill()
