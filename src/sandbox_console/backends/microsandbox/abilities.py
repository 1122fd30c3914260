"""The abilities of the microsandbox backend: the protocols of ``backends.abilities``."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.backends.common import guest_tar
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.microsandbox import (
    egress,
    files,
    guest_scripts,
    images,
    sdk,
    snapshots,
    system_log,
    translate,
)
from sandbox_console.backends.microsandbox.create_options import Options
from sandbox_console.backends.microsandbox.inventory import Inventory
from sandbox_console.backends.microsandbox.process import MicrosandboxProcess
from sandbox_console.errors import Unsupported
from sandbox_console.model.action import Permit
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.guest import FileInfo, GuestEvent, GuestProcess
from sandbox_console.model.image import Image, Prunable, Snapshot
from sandbox_console.model.sandbox import SandboxRef


class Abilities:
    """Files, processes, the raw description, events, images, snapshots and egress."""

    def __init__(self, looker: Inventory, options: Options) -> None:
        self._looker = looker
        self._options = options

    async def stat(self, ref: SandboxRef, path: str) -> FileInfo:
        module = await sdk.load()
        return await files.stat(module, await self._machine(module, ref), path)

    async def list_dir(self, ref: SandboxRef, path: str) -> Sequence[FileInfo]:
        module = await sdk.load()
        return await files.list_dir(module, await self._machine(module, ref), path)

    async def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncGenerator[bytes, None]:
        need(permit)
        process = await self._run(ref, guest_tar.pack(path))
        await process.close_stdin()
        async with aclosing(files.download(process, path)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        need(permit)
        await files.upload(await self._run(ref, files.unpack(path)), path, archive)

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        module = await sdk.load()
        return await guest_scripts.processes(await self._machine(module, ref))

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        handle = await self._looker.started(await sdk.load(), ref)
        if handle is None:
            return {"id": ref.id, "status": "created", "spec": translate.public_spec(await self._looker.inspect(ref))}
        view = translate.view(handle)
        return {"id": view.id, "status": view.status, "config": view.public}

    async def guest_events(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncGenerator[GuestEvent, None]:
        module = await sdk.load()
        handle = await self._looker.started(module, ref)
        if handle is None:
            at = (await self._looker.inspect(ref)).created_at or 0.0
            if since is None or at >= since:
                yield GuestEvent(at, "create", "it boots at its first start")
            handle = await self._looker.first_start(module, ref) if follow else None
        if handle is not None:
            async with aclosing(system_log.guest_events(module, handle, since, follow=follow)) as events:
                async for event in events:
                    yield event

    async def images(self) -> Sequence[Image]:
        return await images.images(await sdk.load(), await self._waiting())

    async def pull_image(self, permit: Permit, name: str, progress: Progress) -> str:
        need(permit)
        return await images.pull(await sdk.load(), name, self._options, progress)

    async def remove_image(self, permit: Permit, name: str, force: bool) -> None:
        need(permit)
        await images.remove(await sdk.load(), name, force=force)

    async def prunable_images(self, unused: bool) -> Prunable:
        return await images.prunable(await sdk.load(), await self._waiting(), unused=unused)

    async def prune_images(self, permit: Permit, unused: bool) -> Prunable:
        need(permit)
        return await images.prune(await sdk.load(), await self._waiting(), unused=unused)

    async def _waiting(self) -> Counter[str]:
        """How many sandboxes that were never started need each image."""
        return Counter(one.spec.image for one in await asyncio.to_thread(self._looker.pending.all))

    async def load_image(self, permit: Permit, archive: AsyncIterator[bytes]) -> str:
        need(permit)
        return await images.load(await sdk.load(), archive)

    async def save_image(self, permit: Permit, name: str) -> AsyncGenerator[bytes, None]:
        need(permit)
        async with aclosing(images.save(await sdk.load(), name)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def snapshots(self) -> Sequence[Snapshot]:
        return await snapshots.all_of(await sdk.load())

    async def take_snapshot(self, permit: Permit, ref: SandboxRef, name: str, full: bool) -> Snapshot:
        need(permit)
        module = await sdk.load()
        return await snapshots.take(module, await self._looker.begun(module, ref), name, full=full)

    async def restore_snapshot(self, permit: Permit, snapshot: str, name: str, secrets: Secrets) -> SandboxRef:
        need(permit)
        return await snapshots.restore(await sdk.load(), self._looker, snapshot, name, secrets)

    async def remove_snapshot(self, permit: Permit, snapshot: str) -> None:
        need(permit)
        await snapshots.remove(await sdk.load(), snapshot)

    async def fork(self, permit: Permit, ref: SandboxRef, name: str, secrets: Secrets) -> SandboxRef:
        need(permit)
        module = await sdk.load()
        handle = await self._looker.running(module, ref)
        return await snapshots.fork(module, self._looker, handle, name, secrets)

    async def egress(self, ref: SandboxRef) -> EgressState:
        return egress.state(await self._looker.inspect(ref))

    async def set_egress(self, permit: Permit, ref: SandboxRef, rules: Sequence[EgressRule]) -> None:
        need(permit)
        raise Unsupported(
            f"microsandbox cannot change the network of {ref.id} while it exists ({len(rules)} rules were asked)",
            hint="sandbox-console update NAME --egress HOST recreates it",
        )

    async def probe_egress(self, permit: Permit, ref: SandboxRef, host: str, port: int) -> EgressVerdict:
        need(permit)
        return egress.verdict(await self._looker.inspect(ref), host, port)

    async def egress_records(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncGenerator[EgressRecord, None]:
        module = await sdk.load()
        handle = await self._looker.started(module, ref)
        if handle is None and (not follow or (handle := await self._looker.first_start(module, ref)) is None):
            return
        async with aclosing(system_log.entries(module, handle, since, follow=follow)) as entries:
            async for entry in entries:
                if entry is not None and (record := egress.record(translate.view(handle).shown_name, entry)):
                    yield record

    async def _machine(self, module: Any, ref: SandboxRef) -> Any:
        """A connection to a running sandbox. Raises NotFound, Conflict."""
        handle = await self._looker.running(module, ref)
        return await sdk.call(module, f"sandbox {handle.name}", handle.connect())

    async def _run(self, ref: SandboxRef, argv: Sequence[str]) -> MicrosandboxProcess:
        module = await sdk.load()
        machine = await self._machine(module, ref)
        handle = await self._stream(module, machine, argv)
        return MicrosandboxProcess(handle, lambda session: guest_scripts.sweep(machine, session))

    @staticmethod
    async def _stream(module: Any, machine: Any, argv: Sequence[str], **options: Any) -> Any:
        chosen = {key: value for key, value in options.items() if value}
        streaming = machine.exec_stream(argv[0], list(argv[1:]), stdin=module.Stdin.pipe(), **chosen)
        return await sdk.call(module, f"the command {argv[0]}", streaming)
