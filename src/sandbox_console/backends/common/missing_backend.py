"""Stands for a backend that is registered but cannot be imported, so that the others work and its lack is told."""
# ruff: noqa: ARG002 - the protocol's arguments

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.unsupported import UnsupportedMethods
from sandbox_console.errors import BackendUnreachable, ConfigError
from sandbox_console.model.action import Permit
from sandbox_console.model.event import BackendEvent, HealthChanged
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec


class MissingBackend(UnsupportedMethods):
    """Unreachable, for the reason for which it could not be imported. All that is asked of it fails with that."""

    def __init__(self, name: str, error: ConfigError) -> None:
        self.name, self.host = name, "local"
        self._error = error

    async def open(self) -> None:
        """Nothing is prepared."""

    async def close(self) -> None:
        """Nothing is released."""

    async def health(self) -> BackendHealth:
        return BackendHealth(self.name, self.host, HealthState.UNREACHABLE, self._error.message, self._error.hint)

    async def list(self) -> list[Sandbox]:
        raise self._unreachable()

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        raise self._unreachable()

    async def watch(self) -> AsyncGenerator[BackendEvent, None]:
        yield HealthChanged(await self.health())
        await asyncio.Event().wait()  # it stays as it is while this process runs

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return {}

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        need(permit)
        raise self._unreachable()

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        need(permit)
        raise self._unreachable()

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        raise self._unreachable()

    def _unreachable(self) -> BackendUnreachable:
        return BackendUnreachable(self._error.message, hint=self._error.hint)
