"""The arguments of an effect, besides its permit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct, field

from sandbox_console.backends.base import Backend, Progress, Secrets
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.effects.recreation import Steps
from sandbox_console.service.gate.operation import ExecIO
from sandbox_console.service.gate.quarantine_store import Holds

EndSessions = Callable[[SandboxRef], Awaitable[int]]
"""Ends the shells and forwards of a sandbox, and returns how many."""


async def _none(_: SandboxRef) -> int:
    return 0


class Call(Struct, frozen=True):
    """Everything that an effect needs besides the permit."""

    backend: Backend
    target: Sandbox | None
    secrets: Secrets
    progress: Progress
    io: ExecIO = field(default_factory=ExecIO)
    redactor: Redactor = field(default_factory=Redactor)
    injects: Mapping[str, str] = field(default_factory=dict)
    holds: Holds = field(default_factory=lambda: Holds(Path("/nonexistent")))
    by: str = ""
    end_sessions: EndSessions = _none
    steps: Steps | None = None
