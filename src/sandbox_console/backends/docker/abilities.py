"""The abilities of ``backends.abilities`` on one engine, each calling the module that implements it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.base import Process, Progress
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.docker import attach, commit, events, files, images, processes, pull, translate
from sandbox_console.model.action import Permit
from sandbox_console.model.guest import FileInfo, GuestEvent, GuestProcess, PathChange
from sandbox_console.model.image import Image, Prunable
from sandbox_console.model.sandbox import SandboxRef

if TYPE_CHECKING:
    from sandbox_console.backends.docker.connection import Connection
    from sandbox_console.backends.docker.engine import Engine
    from sandbox_console.backends.docker.gateways import Gateways

_CLOCK_S = 5.0


class Abilities:
    """What a backend may do besides the Backend protocol; mixed into DockerBackend."""

    _connection: Connection
    _gateways: Gateways

    async def stat(self, ref: SandboxRef, path: str) -> FileInfo:
        return await files.stat(await self._engine(), ref.id, path)

    async def list_dir(self, ref: SandboxRef, path: str) -> Sequence[FileInfo]:
        return await files.list_dir(await self._engine(), ref.id, path)

    async def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncIterator[bytes]:
        need(permit)
        async with aclosing(files.download(await self._engine(), ref.id, path)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        need(permit)
        await files.upload(await self._engine(), ref.id, path, archive)

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        return await processes.processes(await self._engine(), ref.id)

    async def changes(self, ref: SandboxRef) -> Sequence[PathChange]:
        return await processes.changes(await self._engine(), ref.id)

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        return await processes.raw(await self._engine(), ref.id)

    async def guest_events(self, ref: SandboxRef, *, since: float | None, follow: bool) -> AsyncIterator[GuestEvent]:
        async with aclosing(events.read(await self._engine(), ref.id, since=since, follow=follow)) as guest_events:
            async for event in guest_events:
                yield event

    async def clock(self) -> float | None:
        info = await (await self._engine()).call("GET", "info", timeout_s=_CLOCK_S)
        return translate.seconds(info.get("SystemTime"))

    async def attach(self, permit: Permit, ref: SandboxRef) -> Process:
        need(permit)
        return await attach.attach(await self._engine(), ref.id)

    async def commit(self, permit: Permit, ref: SandboxRef, image: str) -> str:
        need(permit)
        return await commit.commit(await self._engine(), ref.id, image)

    async def images(self) -> Sequence[Image]:
        return await images.images(await self._engine(), self._gateways.image)

    async def pull_image(self, permit: Permit, name: str, progress: Progress) -> str:
        need(permit)
        return await pull.pull(await self._engine(), name, progress)

    async def remove_image(self, permit: Permit, name: str, force: bool) -> None:
        need(permit)
        await images.remove(await self._engine(), name, force)

    async def prunable_images(self, unused: bool) -> Prunable:
        return await images.prunable(await self._engine(), unused, self._gateways.image)

    async def prune_images(self, permit: Permit, unused: bool) -> Prunable:
        need(permit)
        return await images.prune(await self._engine(), unused, self._gateways.image)

    async def load_image(self, permit: Permit, archive: AsyncIterator[bytes]) -> str:
        need(permit)
        return await images.load(await self._engine(), archive)

    async def save_image(self, permit: Permit, name: str) -> AsyncIterator[bytes]:
        need(permit)
        async with aclosing(images.save(await self._engine(), name)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _engine(self) -> Engine:
        return await self._connection.engine()
