"""The backend for one local runtime of A3S Box."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from sandbox_console.backends.a3s import events, limits, logs
from sandbox_console.backends.a3s.capabilities import capabilities
from sandbox_console.backends.a3s.client import Client, Place
from sandbox_console.backends.a3s.commands import A3sProcess, Guest
from sandbox_console.backends.a3s.images import A3sImages
from sandbox_console.backends.a3s.options import Runtime
from sandbox_console.backends.a3s.translate import BACKEND, GENERATION, asked, of_box
from sandbox_console.backends.base import Secrets
from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.common.messages import not_stopped
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.placed_backend import LIVE, PlacedBackend, Runs
from sandbox_console.errors import BackendError, ConsoleError, NotFound
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.action import Exec, Permit
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.guest import GuestEvent, GuestProcess
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import Diagnosis, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from a3s_box import AsyncSandbox, SandboxSummary

_AGAIN_S = 1.0


class A3sBackend(PlacedBackend["SandboxSummary"], A3sImages):
    """The sandboxes of one runtime. It keeps one that is stopped, with its files.

    A runtime counts the generations of a sandbox. What this console started it touches only in that generation; of
    others' sandboxes, the one that was there when a verb began.
    """

    name = BACKEND
    proved = "proved against a stand-in bridge and this console's own shim; A3S Box itself was not at hand"

    def __init__(self, host: str, runtime: Runtime, guests: Callable[[], GuestFolders], folder: Path) -> None:
        self._runtime = runtime
        self._client = Client(host, runtime, guests)
        super().__init__(host, self._client, folder)

    def capabilities(self) -> Capabilities:
        return capabilities()

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return {} if spec.image else {"image": "the name of an image is needed"}

    async def diagnose(self) -> Sequence[Diagnosis]:
        """What it was proved against, and what the runtime tells of itself."""
        told = list(await super().diagnose())
        try:
            found = await self._client.call("diagnostics", self._client.sdk().runtime_diagnostics())
        except ConsoleError as error:
            return [*told, Diagnosis("runtime", "problem", error.message, error.hint)]
        wall = found.virtualization
        text = f"version {found.runtime_version}; {wall.backend or 'no virtualization'}: {wall.details}"
        missing = self._runtime.isolation == "microvm" and not wall.available
        hint = 'isolation = "sandbox" in the runtime\'s table needs none' if missing else ""
        return [*told, Diagnosis("runtime", "warning" if missing else "ok", text, hint)]

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:  # noqa: ARG002 - a spec with secrets is refused
        """Start it again with its files, or make it. A generation that another program started is taken over."""
        need(permit)
        found, entry = await self.inspect(ref), await self._entry(ref)
        id_ = entry.place if entry is not None else ref.id
        if found.status in LIVE:
            if entry is not None:
                await self._keep(entry, (await self._client.inspected(id_)).generation)
            return
        if found.status in (Status.CREATED, Status.LOST) and entry is not None and entry.spec is not None:
            made = await self._make_box(entry.spec)
            entry = await self._ledger.put(entry, place=made.id)
        else:
            made = await self._box_of(Place(id_, (await self._client.inspected(id_)).generation))
            operation = f"sandbox-console-{uuid.uuid4()}"
            await self._client.call("restart", made.restart(operation_id=operation))
        if entry is not None:
            entry = await self._ledger.put(entry, started_at=time.time(), finished_at=None, exit=None)
            await self._keep(entry, made.generation)
            await self._limited(made, entry)
        self._polling.wake()

    async def _limited(self, made: AsyncSandbox, entry: Entry) -> None:
        """Set the limits that are set while it runs; one that cannot have them does not go on."""
        try:
            await limits.apply(self._client, made, entry.spec)
        except ConsoleError:
            await self._client.call("stop", made.stop())
            raise

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:  # noqa: ARG002 - the runtime has its own
        """Stop it; the runtime keeps its files."""
        need(permit)
        if (await self.inspect(ref)).status not in LIVE:
            return
        box = await self._box_of(await self._fence(ref))
        await self._client.call("stop", box.stop())
        await self._noted(ref, box, finished_at=time.time())

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        await self._running(ref)
        box = await self._box_of(await self._fence(ref))
        await self._client.call("pause", box.pause())
        await self._noted(ref, box)

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        found = await self.inspect(ref)
        if found.status is not Status.PAUSED:
            raise limits.not_paused(found.name, found.status)
        box = await self._box_of(await self._fence(ref))
        await self._client.call("resume", box.resume())
        await self._noted(ref, box)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        found = await self.inspect(ref)
        if found.status in LIVE and not force:
            raise not_stopped(found.name, found.status)
        if await self._has(ref):
            box = await self._box_of(await self._fence(ref))
            await self._client.call("remove", box.kill() if found.status in LIVE else box.remove())
        await self._ledger.drop(ref.id)
        self._polling.wake()

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        """Change its labels, which only this console knows then, its processes and its share of the CPUs."""
        entry = await self._entry(ref)
        before = entry.spec if entry is not None else None
        if before is not None and (before.cpus, before.pids) != (spec.cpus, spec.pids):
            need(permit)
            await self._running(ref)
            await limits.apply(self._client, await self._box_of(await self._fence(ref)), spec, before)
        await super().update(permit, ref, spec)

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> A3sProcess:  # noqa: ARG002 - a spec with secrets is refused
        need(permit)
        await self._running(request.ref)
        return A3sProcess(self._client, await self._fence(request.ref), request)

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        await self._place(ref)
        async with aclosing(limits.samples(self._client, await self._fence(ref), interval_s)) as samples:
            async for sample in samples:
                yield sample

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        """The runtime's own processes in it. It tells their ids, not what they run."""
        await self._running(ref)
        box = await self._box_of(await self._fence(ref))
        found = await self._client.call("processes", box.processes())
        return [GuestProcess(one.pid or 0, command=one.process_id[:300]) for one in found.processes]

    async def guest_events(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncGenerator[GuestEvent, None]:
        await self._place(ref)
        told: Place | None = None
        while True:
            if (place := await self._fence(ref)) != told:
                told = place
                async with aclosing(events.read(self._client, place, since, follow=follow)) as found:
                    async for event in found:
                        yield event
            if not follow:
                return
            await asyncio.sleep(_AGAIN_S)  # it has ended; a start makes another generation

    async def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncGenerator[bytes, None]:
        need(permit)
        async with aclosing((await self._guest(ref)).download(path)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        need(permit)
        await (await self._guest(ref)).upload(path, archive)

    async def _guest(self, ref: SandboxRef) -> Guest:
        await self._running(ref)
        return Guest(self._client, await self._fence(ref))

    async def _fence(self, ref: SandboxRef) -> Place:
        """The generation that a verb means: that which this console started, or that which is there now."""
        entry = await self._entry(ref)
        if entry is not None and (known := entry.more.get(GENERATION, "")).isdecimal():
            return Place(entry.place, int(known))
        id_ = entry.place if entry is not None else ref.id
        return Place(id_, (await self._client.inspected(id_)).generation)

    async def _box_of(self, place: Place) -> AsyncSandbox:
        return await self._client.box(place)

    async def _has(self, ref: SandboxRef) -> bool:
        """Whether the runtime has it."""
        entry = await self._entry(ref)
        try:
            await self._client.one(entry.place if entry is not None else ref.id)
        except NotFound:
            return False
        return True

    async def _keep(self, entry: Entry, generation: int) -> None:
        await self._ledger.put(entry, more={**entry.more, GENERATION: str(generation)})

    async def _noted(self, ref: SandboxRef, box: AsyncSandbox, **changes: Any) -> None:
        """Store what a verb changed: also a generation, if it made another."""
        if (entry := await self._entry(ref)) is not None:
            await self._keep(structs.replace(entry, **changes), box.generation)
        self._polling.wake()

    async def _boxes(self) -> Mapping[str, SandboxSummary]:
        return {box.id: box for box in await self._client.every()}

    async def _box(self, place: str) -> SandboxSummary:
        return await self._client.one(place)

    async def _raw(self, place: str) -> Mapping[str, Any]:
        from dataclasses import asdict

        return {**asdict(await self._client.one(place)), **structs.asdict(await self._client.inspected(place))}

    def _row(self, box: SandboxSummary, entry: Entry | None) -> Sandbox:
        return of_box(self.host, box, entry)

    async def _make_box(self, spec: SandboxSpec, snapshot: str = "") -> AsyncSandbox:
        """Make and start a sandbox."""
        runtime = self._client.runtime()
        from a3s_box import AsyncSandbox

        making = AsyncSandbox.create(**asked(spec, self._runtime, snapshot), runtime=runtime)
        made = await self._client.call("create", making)
        self._polling.wake()
        if made.state != "running":
            raise BackendError(f"{self._client.label}: {spec.name} is {made.state}, not running, after its start")
        return made

    async def _make(self, spec: SandboxSpec) -> str:
        return (await self._make_box(spec)).id

    async def _delete(self, place: str) -> None:
        box = await self._box_of(Place(place, (await self._client.inspected(place)).generation))
        await self._client.call("remove", box.kill())

    async def _log(self, place: str, runs: Runs, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        async with aclosing(logs.read(self._client, place, runs, query)) as batches:
            async for batch in batches:
                yield batch
