"""What a Kubernetes backend refuses: each method names the capability and the reason."""
# ruff: noqa: ARG002 - the protocol's arguments

from __future__ import annotations

from collections.abc import AsyncGenerator

from sandbox_console.backends.common.permit import need
from sandbox_console.errors import Unsupported
from sandbox_console.model.action import Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import SandboxRef, Stats


class Refusing:
    """The methods of a backend that a cluster has no way to do."""

    name = ""

    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities()

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        for capability in (Capability.STATS,):  # a generator, so that it raises when it is read
            raise self._cannot(capability)
        yield Stats(0.0)

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

    def _cannot(self, capability: Capability) -> Unsupported:
        return Unsupported(f"{capability} is unsupported on {self.name}: {self.capabilities().reason(capability)}")
