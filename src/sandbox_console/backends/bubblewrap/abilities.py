"""The abilities of ``backends.abilities``, each calling the module that implements it; mixed into the backend."""

# ruff: noqa: ARG002 - a permit is taken as proof that the attempt is on record; nothing in here reads it

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import Process
from sandbox_console.backends.bubblewrap import egress, events, files, logs, processes
from sandbox_console.backends.bubblewrap.attach import Attached
from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.backends.bubblewrap.state import Record, Store
from sandbox_console.backends.common.messages import not_running
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Permit
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.guest import FileInfo, GuestEvent, GuestProcess
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import Exit, SandboxRef


class Abilities:
    """Files, processes, data on disk, events, egress, and the main process's output."""

    _store: Store
    _options: Options

    async def stat(self, ref: SandboxRef, path: str) -> FileInfo:
        return await files.stat(await self._record(ref), path)

    async def list_dir(self, ref: SandboxRef, path: str) -> Sequence[FileInfo]:
        return await files.list_dir(await self._record(ref), path)

    async def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncIterator[bytes]:
        async with aclosing(files.download(await self._record(ref), path)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        await files.upload(await self._record(ref), path, archive)

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        return await asyncio.to_thread(processes.processes, await self._record(ref))

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        return await asyncio.to_thread(processes.raw, await self._record(ref))

    async def guest_events(self, ref: SandboxRef, *, since: float | None, follow: bool) -> AsyncIterator[GuestEvent]:
        record = await self._record(ref)
        async with aclosing(events.read(record.folder, since=since, follow=follow)) as guest_events:
            async for event in guest_events:
                yield event

    async def publish(self, permit: Permit, ref: SandboxRef, published: bool) -> None:
        record = await self._record(ref)
        if not record.status.live:
            raise not_running(record.spec.name, record.status)
        await self._ask(record, {"op": "ports", "open": published})

    async def _ask(self, record: Record, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to its supervisor. Raises BackendError."""
        raise NotImplementedError

    async def attach(self, permit: Permit, ref: SandboxRef) -> Process:
        record = await self._running(ref)
        query = LogQuery(follow=True, since=time.time())
        return Attached(logs.read(record.folder, query, lambda: self._live(ref.id)), lambda: self._end_of(ref))

    async def egress(self, ref: SandboxRef) -> EgressState:
        return await egress.state(await self._record(ref))

    async def set_egress(self, permit: Permit, ref: SandboxRef, rules: Sequence[EgressRule]) -> None:
        await egress.put(await self._record(ref), rules, self._options)

    async def probe_egress(self, permit: Permit, ref: SandboxRef, host: str, port: int) -> EgressVerdict:
        return await egress.probe(await self._running(ref), host, port)

    async def egress_records(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncIterator[EgressRecord]:
        async with aclosing(egress.records(await self._record(ref), since, follow)) as records:
            async for record in records:
                yield record

    async def egress_folder(self, ref: SandboxRef) -> Path | None:
        return egress.records_folder(await self._record(ref))

    async def _end_of(self, ref: SandboxRef) -> Exit:
        """How the main process ended. The supervisor writes it to disk a moment after the output ends."""
        while True:
            record = await self._record(ref)
            if not record.status.live:
                end = record.raw.get("exit") or {}
                return Exit(end.get("code"), end.get("signal"), end.get("oom"), end.get("reason", ""))
            await asyncio.sleep(0.01)

    async def _running(self, ref: SandboxRef) -> Record:
        record = await self._record(ref)
        if not record.status.live:
            raise not_running(record.spec.name, record.status)
        return record

    async def _record(self, ref: SandboxRef) -> Record:
        return await asyncio.to_thread(self._store.get, ref.id)

    def _live(self, identity: str) -> bool:
        try:
            return self._store.get(identity).status.live
        except ConsoleError:
            return False
