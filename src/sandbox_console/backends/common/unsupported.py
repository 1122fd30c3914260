"""The methods of a backend that its provider has no way to do: each refuses, and says which capability and why."""
# ruff: noqa: ARG002 - the protocol's arguments

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from sandbox_console.backends.base import Process, Progress, Secrets, Terminal
from sandbox_console.backends.common.permit import need
from sandbox_console.errors import Unsupported
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.image import Prunable
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import SandboxRef, Stats
from sandbox_console.model.spec import SandboxSpec


class UnsupportedMethods:
    """A base for backends. A subclass overrides what its provider can do."""

    name = ""

    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities()

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        for capability in (Capability.LOGS,):  # a generator, so that it raises when it is read
            raise self._cannot(capability)
        yield ()

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        for capability in (Capability.STATS,):
            raise self._cannot(capability)
        yield Stats(0.0)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        raise self._refused(permit, Capability.STOP)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        raise self._refused(permit, Capability.KILL)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        raise self._refused(permit, Capability.PAUSE)

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        raise self._refused(permit, Capability.PAUSE)

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        raise self._refused(permit, Capability.RENAME)

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        raise self._refused(permit, Capability.UPDATE_LABELS)

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> Process:
        raise self._refused(permit, Capability.EXEC)

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> Terminal:
        raise self._refused(permit, Capability.SHELL)

    def _refused(self, permit: Permit, capability: Capability) -> Unsupported:
        need(permit)
        return self._cannot(capability)

    def _cannot(self, capability: Capability) -> Unsupported:
        return Unsupported(f"{capability} is unsupported on {self.name}: {self.capabilities().reason(capability)}")


class UnchangedImages(UnsupportedMethods):
    """A base for backends that list what sandboxes are made of, and change none of it."""

    async def pull_image(self, permit: Permit, name: str, progress: Progress) -> str:
        raise self._refused(permit, Capability.IMAGES_CHANGE)

    async def remove_image(self, permit: Permit, name: str, force: bool) -> None:
        raise self._refused(permit, Capability.IMAGES_CHANGE)

    async def prunable_images(self, unused: bool) -> Prunable:
        raise self._cannot(Capability.IMAGES_CHANGE)

    async def prune_images(self, permit: Permit, unused: bool) -> Prunable:
        raise self._refused(permit, Capability.IMAGES_CHANGE)

    async def load_image(self, permit: Permit, archive: AsyncIterator[bytes]) -> str:
        raise self._refused(permit, Capability.IMAGE_FILES)

    async def save_image(self, permit: Permit, name: str) -> AsyncGenerator[bytes, None]:
        need(permit)
        for capability in (Capability.IMAGE_FILES,):
            raise self._cannot(capability)
        yield b""
