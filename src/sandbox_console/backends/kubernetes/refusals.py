"""What a Kubernetes backend refuses: each method names the capability and the reason."""
# ruff: noqa: ARG002 - the protocol's arguments

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.backends.common.permit import need
from sandbox_console.errors import Unsupported
from sandbox_console.model.action import Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import SandboxRef, Stats
from sandbox_console.model.spec import SandboxSpec


class Refusing:
    """The methods of a backend that a cluster has no way to do."""

    name = ""

    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities()

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        for capability in (Capability.STATS,):
            raise self._cannot(capability)
        yield Stats(0.0)

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return {}

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        need(permit)
        raise self._cannot(Capability.CREATE)

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        need(permit)
        raise self._cannot(Capability.START)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        need(permit)
        raise self._cannot(Capability.STOP)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        need(permit)
        raise self._cannot(Capability.KILL)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        raise self._cannot(Capability.PAUSE)

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        raise self._cannot(Capability.PAUSE)

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        need(permit)
        raise self._cannot(Capability.RENAME)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        raise self._cannot(Capability.REMOVE)

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        need(permit)
        raise self._cannot(Capability.UPDATE_LABELS)

    def _cannot(self, capability: Capability) -> Unsupported:
        return Unsupported(f"{capability} is unsupported on {self.name}: {self.capabilities().reason(capability)}")
