"""The backend for an account of E2B."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import ReadKey, Secrets
from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.placed_backend import PlacedBackend, Runs
from sandbox_console.backends.common.queued_process import ProcessTerminal
from sandbox_console.backends.e2b import logs
from sandbox_console.backends.e2b.capabilities import capabilities
from sandbox_console.backends.e2b.client import Box, Client, LogEntry
from sandbox_console.backends.e2b.options import Account
from sandbox_console.backends.e2b.process import E2bProcess, Guest
from sandbox_console.backends.e2b.translate import BACKEND, asked, of_box
from sandbox_console.errors import Conflict, NotFound
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.shells import SHELLS
from sandbox_console.model.spec import SandboxSpec

_BEST = "for s in " + " ".join(SHELLS) + '; do [ -x "$s" ] && exec "$s"; done; exec sh'


class E2bBackend(PlacedBackend[Box]):
    """The sandboxes of one account."""

    name = BACKEND
    proved = "proved against a stand-in made from E2B's published API; no account was at hand"

    def __init__(self, host: str, account: Account, key: ReadKey, folder: Path) -> None:
        self._account = account
        self._client = Client(host, account, key)
        super().__init__(host, self._client, folder)

    def capabilities(self) -> Capabilities:
        return capabilities()

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return self._of_template(spec, "template", "a template's name or id")

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        place, seen = await self._place(ref), -1.0
        while (await self.inspect(ref)).status is Status.RUNNING:
            for one in [found for found in await self._client.metrics(place) if found.timestamp_unix > seen][-1:]:
                seen = one.timestamp_unix
                busy = None if one.cpu_used_pct is None else one.cpu_used_pct * one.cpu_count
                used, most = (None if value is None else int(value) for value in (one.mem_used, one.mem_total))
                yield Stats(seen, busy, used, most)
            await asyncio.sleep(interval_s)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        await self._client.act("POST", await self._running(ref), "pause", {})
        self._polling.wake()

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        """Resume it, for the lifetime of the account's table."""
        need(permit)
        found = await self.inspect(ref)
        if found.status is not Status.PAUSED:
            raise Conflict(f"{found.name} is not paused: it is {found.status}")
        await self._client.act("POST", await self._place(ref), "connect", {"timeout": self._account.lifetime_s})
        self._polling.wake()

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> E2bProcess:  # noqa: ARG002 - a spec with secrets is refused
        need(permit)
        place = await self._running(request.ref)
        return E2bProcess(self._client, place, request.argv, request.env, cwd=request.workdir, user=request.user or "")

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> ProcessTerminal:  # noqa: ARG002 - as above
        need(permit)
        place = await self._running(request.ref)
        best = request.shell is None and not request.command
        words = ("sh", "-c", _BEST) if best else request.argv(request.shell or "sh")
        process = E2bProcess(
            self._client, place, words, {"TERM": request.term, **request.env},
            cwd=request.workdir, user=request.user or "", size=(request.cols, request.rows),
        )  # fmt: skip
        return ProcessTerminal(process)

    async def _guest(self, ref: SandboxRef) -> Guest:
        return Guest(self._client, await self._running(ref))

    async def _boxes(self) -> Mapping[str, Box]:
        return {box.sandbox_id: box for box in await self._client.every()}

    async def _box(self, place: str) -> Box:
        return await self._client.one(place)

    async def _raw(self, place: str) -> Mapping[str, Any]:
        return await self._client.raw(place)

    def _row(self, box: Box, entry: Entry | None) -> Sandbox:
        return of_box(self.host, box, entry)

    async def _make(self, spec: SandboxSpec) -> str:
        return await self._client.create(asked(spec, self._account.lifetime_s))

    async def _delete(self, place: str) -> None:
        await self._client.act("DELETE", place)

    async def _log(self, place: str, runs: Runs, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        async def lines(cursor_ms: int) -> Sequence[LogEntry]:
            try:
                return await self._client.logs(place, cursor_ms)
            except NotFound:  # it was removed meanwhile
                return ()

        async with aclosing(logs.read(lines, runs, query)) as batches:
            async for batch in batches:
                yield batch
