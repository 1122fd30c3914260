"""The base of backends whose server reports no changes, and does not tell what it was asked for."""

from __future__ import annotations

import builtins
import secrets as randomness
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.backends.common.ledger import Entry, Ledger
from sandbox_console.backends.common.messages import name_taken
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.polling import Polling
from sandbox_console.backends.common.refusing import Refusing
from sandbox_console.backends.common.remote import health
from sandbox_console.errors import InvalidSpec, NotFound
from sandbox_console.model.action import Permit
from sandbox_console.model.capability import Capability
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec


class Connection(Protocol):
    """The client of one server; ``label`` names the server in messages."""

    label: str

    async def close(self) -> None:
        """Close its connections."""
        ...


class RemoteBackend(Refusing, ABC):
    """The sandboxes of one server: its list is polled, and a ledger keeps what this console asked for.

    ``proved`` says against which server the backend was tried.
    """

    proved = ""

    def __init__(self, host: str, connection: Connection, folder: Path) -> None:
        self.host = host
        self._connection = connection
        self._ledger = Ledger(folder)
        self._polling = Polling(self._look, lambda error: health(self.name, host, error))

    @abstractmethod
    async def _rows(self) -> Sequence[Sandbox]:
        """Read the list. Raises a ConsoleError."""

    @abstractmethod
    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        """What is wrong with a spec, by field."""

    async def open(self) -> None:
        """Nothing is needed before the first request."""

    async def close(self) -> None:
        await self._connection.close()

    async def health(self) -> BackendHealth:
        return await self._polling.health()

    async def diagnose(self) -> Sequence[Diagnosis]:
        return [Diagnosis("proof", "ok", self.proved, "docs/interop.md")]

    async def list(self) -> builtins.list[Sandbox]:
        return [*await self._polling.rows()]

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        for one in await self.list():
            if one.ref == ref:
                return one
        raise NotFound(f"{self._connection.label} has no sandbox {ref.id}", hint="sandbox-console ls")

    async def watch(self) -> AsyncGenerator[BackendEvent, None]:
        async with aclosing(self._polling.events()) as events:
            async for event in events:
                yield event

    async def create(
        self,
        permit: Permit,
        spec: SandboxSpec,
        secrets: Secrets,  # noqa: ARG002 - a spec with secrets is refused: secret.env is unsupported
        progress: Progress,  # noqa: ARG002 - nothing is asked of the server yet
    ) -> SandboxRef:
        """Note what is asked for: the server is told when the sandbox starts."""
        need(permit)
        if problems := self.validate(spec):
            raise InvalidSpec(problems)
        if spec.egress:
            raise self._cannot(Capability.EGRESS_ALLOWLIST)
        if not self.capabilities().has(Capability.EGRESS_NONE):
            raise self._cannot(Capability.EGRESS_NONE)
        if any(one.name == spec.name for one in await self.list()):
            raise name_taken(spec.name)
        id_, place = self._identity(spec)
        await self._ledger.put(Entry(id_, place, spec.to_dict(), time.time()))
        self._polling.wake()
        return SandboxRef(self.name, self.host, id_)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        """Raise NotFound, or Unsupported: none of these servers has signals."""
        need(permit)
        await self.inspect(ref)
        await super().kill(permit, ref, signal)

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        """Change its labels, which only this console knows. Raises NotFound, Unsupported."""
        need(permit)
        if not self.capabilities().has(Capability.UPDATE_LABELS):
            raise self._cannot(Capability.UPDATE_LABELS)
        entry = await self._entry(ref)
        if entry is None:
            raise NotFound(f"{ref.id} is not a sandbox that this console made", hint="sandbox-console ls")
        await self._ledger.put(entry, asked=spec.to_dict())
        self._polling.wake()

    def _identity(self, spec: SandboxSpec) -> tuple[str, str]:  # noqa: ARG002 - a server that knows names overrides it
        """The id of a new sandbox, and what the server will call it; empty if it chooses that itself."""
        return f"own-{randomness.token_hex(8)}", ""

    async def _entry(self, ref: SandboxRef) -> Entry | None:
        """What this console asked for; None if somebody else made the sandbox."""
        return (await self._ledger.every()).get(ref.id)

    async def _look(self) -> tuple[BackendHealth, Sequence[Sandbox]]:
        rows = await self._rows()
        return health(self.name, self.host), rows
