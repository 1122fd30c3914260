"""Settles one record that a killed console left behind: of a shell, or of a sandbox that was being replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandbox_console.errors import AuditUnavailable, BackendUnreachable
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.sandbox import SandboxRef, parse_ref
from sandbox_console.service.effects.recreation import Recreation
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.sessions.shell_records import HeldRecord, ShellRecord

Lost = TypeVar("Lost", ShellRecord, Recreation)


async def settle(
    record: HeldRecord, kind: type[Lost], fleet: Fleet, finish: Callable[[Lost, SandboxRef], Awaitable[None]]
) -> int:
    """Finish what the record is about, and remove it. Returns how many were finished, 0 or 1.

    The record is left to the next console if this one does not use its backend, if the backend does not answer, or if
    the end cannot be recorded. A damaged record identifies nothing, so it is only kept as NAME.damaged.
    """
    try:
        lost = await asyncio.to_thread(record.read, kind)
        ref = parse_ref(lost.ref)
    except (OSError, ValueError):
        await asyncio.to_thread(record.set_aside, "it is no record of a console")
        return 0
    try:
        if (ref.backend, ref.host) not in fleet.keys:
            return 0
        await finish(lost, ref)
        await run_to_completion(asyncio.to_thread(record.remove))
    except (AuditUnavailable, BackendUnreachable):
        return 0
    else:
        return 1
    finally:
        record.release()
