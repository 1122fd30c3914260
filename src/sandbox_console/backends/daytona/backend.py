"""The backend for an organization of Daytona."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import ReadKey, Secrets
from sandbox_console.backends.common.guest_command import in_guest
from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.placed_backend import LIVE, PlacedBackend, Runs
from sandbox_console.backends.daytona.capabilities import capabilities
from sandbox_console.backends.daytona.client import Box, Client
from sandbox_console.backends.daytona.commands import DaytonaProcess, Guest
from sandbox_console.backends.daytona.options import Organization
from sandbox_console.backends.daytona.translate import BACKEND, asked, of_box
from sandbox_console.errors import NotFound
from sandbox_console.model.action import Exec, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.log import LogItem, LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec

_POLL_S = 1.0
_PREFIXES = (b"\1\1\1", b"\2\2\2")
"""Before each piece of stdout and of stderr in a log."""


class DaytonaBackend(PlacedBackend[Box]):
    """The sandboxes of one organization. Daytona keeps one that is stopped, with its files."""

    name = BACKEND
    proved = "proved against a stand-in made from Daytona's published API; no account was at hand"

    def __init__(self, host: str, organization: Organization, key: ReadKey, folder: Path) -> None:
        self._organization = organization
        self._client = Client(host, organization, key)
        super().__init__(host, self._client, folder)

    def capabilities(self) -> Capabilities:
        return capabilities()

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return self._of_template(spec, "snapshot", "the name of one of Daytona's snapshots")

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        """Start it again with its files, or make it."""
        need(permit)
        found = await self.inspect(ref)
        place = await self._place(ref)
        if found.status in LIVE:
            return
        if not place or not await self._started(place):
            await super().start(permit, ref, secrets)
            return
        if (entry := await self._entry(ref)) is not None:
            await self._ledger.put(entry, started_at=time.time(), finished_at=None, exit=None)
        self._polling.wake()
        await self._ready(place)

    async def _started(self, place: str) -> bool:
        """Whether Daytona still has it, and starts it."""
        try:
            await self._client.act("POST", place, "start")
        except NotFound:
            return False
        return True

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:  # noqa: ARG002 - it has none
        """Stop it; Daytona keeps its files."""
        need(permit)
        if (await self.inspect(ref)).status not in LIVE:
            return
        place = await self._place(ref)
        await self._client.act("POST", place, "stop")
        await self._client.reached(place, "stopped")
        self._polling.wake()

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> DaytonaProcess:  # noqa: ARG002 - a spec with secrets is refused
        need(permit)
        if request.user is not None:
            raise self._cannot(Capability.EXEC_USER)
        return DaytonaProcess(self._client, await self._running(request.ref), in_guest(request), request.timeout_s)

    async def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncGenerator[bytes, None]:
        need(permit)
        async with aclosing((await self._guest(ref)).download(path)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        need(permit)
        await (await self._guest(ref)).upload(path, archive)

    async def _guest(self, ref: SandboxRef) -> Guest:
        return Guest(self._client, await self._running(ref))

    async def _boxes(self) -> Mapping[str, Box]:
        return {box.id: box for box in await self._client.every()}

    async def _box(self, place: str) -> Box:
        return await self._client.one(place)

    async def _raw(self, place: str) -> Mapping[str, Any]:
        return await self._client.raw(place)

    def _row(self, box: Box, entry: Entry | None) -> Sandbox:
        return of_box(self.host, box, entry)

    async def _make(self, spec: SandboxSpec) -> str:
        return await self._client.create(asked(spec, self._organization.auto_stop_minutes))

    async def _ready(self, place: str) -> None:
        await self._client.reached(place, "started")

    async def _delete(self, place: str) -> None:
        await self._client.act("DELETE", place)

    async def _log(self, place: str, runs: Runs, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        """The entrypoint's log, whose lines have no times. Nobody can read it while the sandbox is stopped."""
        if (await self._client.one(place)).state != "started":
            return
        going_on, seen = query.follow and await runs(), b""
        lines = (seen := await self._printed(place)).splitlines(keepends=True)
        yield [
            LogRecord(0, Stream.STDOUT, line)
            for line in (lines if query.tail is None else lines[len(lines) - query.tail :] if query.tail else ())
        ]
        while going_on:
            await asyncio.sleep(_POLL_S)
            going_on = await runs() and (await self._client.one(place)).state == "started"
            if going_on and (now := await self._printed(place)) != seen:
                yield [LogRecord(0, Stream.STDOUT, now.removeprefix(seen))]
                seen = now

    async def _printed(self, place: str) -> bytes:
        found = await self._client.log(place)
        for prefix in _PREFIXES:
            found = found.replace(prefix, b"")
        return found
